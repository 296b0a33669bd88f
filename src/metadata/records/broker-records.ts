/**
 * Metadata records about brokers and controllers: registration, fencing, incarnations.
 *
 * In the log a frame version, the record type (`apiKey`) and the record version precede each.
 */
import {
  array,
  bool,
  int8,
  int16,
  int32,
  int64,
  type MessageOf,
  message,
  nullable,
  string,
  tagged,
  uint16,
  uuid,
} from '../../protocol/schema.ts';

/** Metadata record type 0. */
export const RegisterBrokerRecord = message({
  apiKey: 0,
  name: 'RegisterBrokerRecord',
  type: 'metadata',
  validVersions: '0-4',
  flexibleVersions: '0+',
  fields: {
    brokerId: int32('0+'),
    isMigratingZkBroker: bool('2+', { default: false }),
    incarnationId: uuid('0+'),
    brokerEpoch: int64('0+'),
    endPoints: array('0+', {
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
    fenced: bool('0+', { default: true }),
    inControlledShutdown: bool('1+', { default: false }),
    logDirs: tagged(array('3+', uuid), 0, '3+'),
    cordonedLogDirs: tagged(nullable(array('4+', uuid), '4+', { default: null }), 1, '4+'),
  },
});
/** A decoded {@link RegisterBrokerRecord}. */
export type RegisterBrokerRecord = MessageOf<typeof RegisterBrokerRecord>;

/** Metadata record type 1. */
export const UnregisterBrokerRecord = message({
  apiKey: 1,
  name: 'UnregisterBrokerRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    brokerId: int32('0+'),
    brokerEpoch: int64('0+'),
  },
});
/** A decoded {@link UnregisterBrokerRecord}. */
export type UnregisterBrokerRecord = MessageOf<typeof UnregisterBrokerRecord>;

/** Metadata record type 17. */
export const BrokerRegistrationChangeRecord = message({
  apiKey: 17,
  name: 'BrokerRegistrationChangeRecord',
  type: 'metadata',
  validVersions: '0-3',
  flexibleVersions: '0+',
  fields: {
    brokerId: int32('0+'),
    brokerEpoch: int64('0+'),
    fenced: tagged(int8('0+'), 0, '0+'),
    inControlledShutdown: tagged(int8('1+'), 1, '1+'),
    logDirs: tagged(array('2+', uuid), 2, '2+'),
    cordonedLogDirs: tagged(nullable(array('3+', uuid), '3+', { default: null }), 3, '3+'),
  },
});
/** A decoded {@link BrokerRegistrationChangeRecord}. */
export type BrokerRegistrationChangeRecord = MessageOf<typeof BrokerRegistrationChangeRecord>;

/** Metadata record type 7. */
export const FenceBrokerRecord = message({
  apiKey: 7,
  name: 'FenceBrokerRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    id: int32('0+'),
    epoch: int64('0+'),
  },
});
/** A decoded {@link FenceBrokerRecord}. */
export type FenceBrokerRecord = MessageOf<typeof FenceBrokerRecord>;

/** Metadata record type 8. */
export const UnfenceBrokerRecord = message({
  apiKey: 8,
  name: 'UnfenceBrokerRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    id: int32('0+'),
    epoch: int64('0+'),
  },
});
/** A decoded {@link UnfenceBrokerRecord}. */
export type UnfenceBrokerRecord = MessageOf<typeof UnfenceBrokerRecord>;

/** Metadata record type 27. */
export const RegisterControllerRecord = message({
  apiKey: 27,
  name: 'RegisterControllerRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    controllerId: int32('0+'),
    incarnationId: uuid('0+'),
    zkMigrationReady: bool('0+'),
    endPoints: array('0+', {
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
  },
});
/** A decoded {@link RegisterControllerRecord}. */
export type RegisterControllerRecord = MessageOf<typeof RegisterControllerRecord>;
