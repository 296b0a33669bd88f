/**
 * API 63, BrokerHeartbeat.
 *
 * Keeps a registered broker unfenced.
 */
import {
  array,
  bool,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  tagged,
  uuid,
} from '../schema.ts';

/** Request of API 63, versions 0-1. */
export const BrokerHeartbeatRequest = message({
  apiKey: 63,
  name: 'BrokerHeartbeatRequest',
  type: 'request',
  validVersions: '0-1',
  flexibleVersions: '0+',
  fields: {
    brokerId: int32('0+'),
    brokerEpoch: int64('0+', { default: -1 }),
    currentMetadataOffset: int64('0+'),
    wantFence: bool('0+'),
    wantShutDown: bool('0+'),
    offlineLogDirs: tagged(array('1+', uuid), 0, '1+'),
  },
});
/** A decoded {@link BrokerHeartbeatRequest}. */
export type BrokerHeartbeatRequest = MessageOf<typeof BrokerHeartbeatRequest>;

/** Response of API 63. */
export const BrokerHeartbeatResponse = message({
  apiKey: 63,
  name: 'BrokerHeartbeatResponse',
  type: 'response',
  validVersions: '0-1',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    isCaughtUp: bool('0+', { default: false }),
    isFenced: bool('0+', { default: true }),
    shouldShutDown: bool('0+'),
  },
});
/** A decoded {@link BrokerHeartbeatResponse}. */
export type BrokerHeartbeatResponse = MessageOf<typeof BrokerHeartbeatResponse>;
