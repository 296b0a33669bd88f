/**
 * API 62, BrokerRegistration.
 *
 * A broker announces itself to the controller.
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
  string,
  uint16,
  uuid,
} from '../schema.ts';

/** Request of API 62, versions 0-4. */
export const BrokerRegistrationRequest = message({
  apiKey: 62,
  name: 'BrokerRegistrationRequest',
  type: 'request',
  validVersions: '0-4',
  flexibleVersions: '0+',
  fields: {
    brokerId: int32('0+'),
    clusterId: string('0+'),
    incarnationId: uuid('0+'),
    listeners: array('0+', {
      name: string('0+'),
      host: string('0+'),
      port: uint16('0+'),
      securityProtocol: int16('0+'),
    }),
    features: array('0+', {
      name: string('0+'),
      minSupportedVersion: int16('0+'),
      maxSupportedVersion: int16('0+'),
    }),
    rack: nullable(string('0+'), '0+'),
    isMigratingZkBroker: bool('1+', { default: false }),
    logDirs: array('2+', uuid, { ignorable: true }),
    previousBrokerEpoch: int64('3+', { default: -1, ignorable: true }),
  },
});
/** A decoded {@link BrokerRegistrationRequest}. */
export type BrokerRegistrationRequest = MessageOf<typeof BrokerRegistrationRequest>;

/** Response of API 62. */
export const BrokerRegistrationResponse = message({
  apiKey: 62,
  name: 'BrokerRegistrationResponse',
  type: 'response',
  validVersions: '0-4',
  flexibleVersions: '0+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('0+'),
    brokerEpoch: int64('0+', { default: -1 }),
  },
});
/** A decoded {@link BrokerRegistrationResponse}. */
export type BrokerRegistrationResponse = MessageOf<typeof BrokerRegistrationResponse>;
