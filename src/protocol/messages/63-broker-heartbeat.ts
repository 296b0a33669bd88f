/**
 * API 63, BrokerHeartbeat.
 *
 * Keeps a registered broker unfenced. Version 2 (Apache Kafka 4.3) adds the cordoned directories;
 * on a controller that knows only version 1 they are left out of the request.
 */
import {
  array,
  bool,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  nullable,
  tagged,
  uuid,
} from '../schema.ts';

/** Request of API 63, versions 0-2. */
export const BrokerHeartbeatRequest = message({
  apiKey: 63,
  name: 'BrokerHeartbeatRequest',
  type: 'request',
  validVersions: '0-2',
  flexibleVersions: '0+',
  fields: {
    brokerId: int32('0+'),
    brokerEpoch: int64('0+', { default: -1 }),
    currentMetadataOffset: int64('0+'),
    wantFence: bool('0+'),
    wantShutDown: bool('0+'),
    offlineLogDirs: tagged(array('1+', uuid), 0, '1+'),
    cordonedLogDirs: tagged(
      nullable(array('2+', uuid, { ignorable: true }), '2+', { default: null }),
      1,
      '2+',
    ),
  },
});
/** A decoded {@link BrokerHeartbeatRequest}. */
export type BrokerHeartbeatRequest = MessageOf<typeof BrokerHeartbeatRequest>;

/** Response of API 63. */
export const BrokerHeartbeatResponse = message({
  apiKey: 63,
  name: 'BrokerHeartbeatResponse',
  type: 'response',
  validVersions: '0-2',
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
