/**
 * Metadata records of ACLs, SCRAM credentials and client quotas, as Apache Kafka writes them.
 *
 * The embedded controller writes none; a guest reads them to authenticate and authorise clients.
 */
import {
  array,
  bool,
  bytes,
  float64,
  int8,
  int32,
  type MessageOf,
  message,
  nullable,
  string,
  uuid,
} from '../../protocol/schema.ts';

/** Metadata record type 11. */
export const UserScramCredentialRecord = message({
  apiKey: 11,
  name: 'UserScramCredentialRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    name: string('0+'),
    mechanism: int8('0+'),
    salt: bytes('0+'),
    storedKey: bytes('0+'),
    serverKey: bytes('0+'),
    iterations: int32('0+'),
  },
});
/** A decoded {@link UserScramCredentialRecord}. */
export type UserScramCredentialRecord = MessageOf<typeof UserScramCredentialRecord>;

/** Metadata record type 18: one ACL. */
export const AccessControlEntryRecord = message({
  apiKey: 18,
  name: 'AccessControlEntryRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    id: uuid('0+'),
    resourceType: int8('0+'),
    resourceName: string('0+'),
    patternType: int8('0+'),
    principal: string('0+'),
    host: string('0+'),
    operation: int8('0+'),
    permissionType: int8('0+'),
  },
});
/** A decoded {@link AccessControlEntryRecord}. */
export type AccessControlEntryRecord = MessageOf<typeof AccessControlEntryRecord>;

/** Metadata record type 19. */
export const RemoveAccessControlEntryRecord = message({
  apiKey: 19,
  name: 'RemoveAccessControlEntryRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    id: uuid('0+'),
  },
});
/** A decoded {@link RemoveAccessControlEntryRecord}. */
export type RemoveAccessControlEntryRecord = MessageOf<typeof RemoveAccessControlEntryRecord>;

/** Metadata record type 22. */
export const RemoveUserScramCredentialRecord = message({
  apiKey: 22,
  name: 'RemoveUserScramCredentialRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    name: string('0+'),
    mechanism: int8('0+'),
  },
});
/** A decoded {@link RemoveUserScramCredentialRecord}. */
export type RemoveUserScramCredentialRecord = MessageOf<typeof RemoveUserScramCredentialRecord>;

/** Metadata record type 14: one setting of one entity. */
export const ClientQuotaRecord = message({
  apiKey: 14,
  name: 'ClientQuotaRecord',
  type: 'metadata',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    entity: array('0+', {
      entityType: string('0+'),
      entityName: nullable(string('0+'), '0+'),
    }),
    key: string('0+'),
    value: float64('0+'),
    remove: bool('0+'),
  },
});
/** A decoded {@link ClientQuotaRecord}. */
export type ClientQuotaRecord = MessageOf<typeof ClientQuotaRecord>;
