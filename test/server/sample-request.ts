/**
 * Well-formed requests of any API in any version, made from its schema: one element in every array,
 * values by the fields' names. Enough to be answered with content rather than refused as a whole.
 */
import type { Uuid } from '../../src/base/uuid.ts';
import type { EncodableOf, FieldSpec, Fields, Message } from '../../src/protocol/schema.ts';
import { inVersions } from '../../src/protocol/schema.ts';

/** Values by field name; an array of this name is given as it is. */
const BY_NAME: Readonly<Record<string, unknown>> = {
  acks: 1,
  apiKeys: [],
  assignments: [],
  clientSoftwareName: 'twinlog-test',
  clientSoftwareVersion: '1',
  configs: [],
  count: 4,
  currentLeaderEpoch: -1,
  cursor: null,
  endpointType: 1,
  forgottenTopicsData: [],
  generationId: -1,
  generationIdOrMemberEpoch: -1,
  groupInstanceId: null,
  leaderEpoch: 0,
  maxBytes: 1_000_000,
  memberId: '',
  numPartitions: 1,
  partitionMaxBytes: 1_000_000,
  producerEpoch: -1,
  producerId: -1n,
  protocolType: 'consumer',
  rackId: '',
  rebalanceTimeoutMs: 10_000,
  replicaId: -1,
  replicationFactor: 1,
  resourceType: 2,
  retentionTimeMs: -1,
  sessionEpoch: -1,
  sessionTimeoutMs: 10_000,
  statesFilter: [],
  timeoutMs: 1_000,
  timestamp: -1n,
  transactionalId: null,
  typesFilter: [],
  validateOnly: false,
};

const GROUP_NAMES = new Set(['groupId', 'groups', 'groupsNames', 'key', 'coordinatorKeys']);
const TOPIC_NAMES = new Set(['name', 'topic', 'topicName', 'topicNames', 'resourceName']);

/** What the requests are about. */
export interface Subject {
  readonly topic: string;
  readonly topicId: Uuid;
  readonly group: string;
  /** One record batch. */
  readonly records: () => Uint8Array;
}

function scalar(name: string, kind: string, subject: Subject): unknown {
  switch (kind) {
    case 'string':
      if (GROUP_NAMES.has(name)) return subject.group;
      return TOPIC_NAMES.has(name) ? subject.topic : 'sample';
    case 'uuid':
      return subject.topicId;
    case 'records':
      return subject.records();
    case 'bytes':
      return new Uint8Array(0);
    case 'bool':
      return false;
    case 'int64Exact':
      return 0n;
    default:
      return 0;
  }
}

function valueFor(name: string, field: FieldSpec, version: number, subject: Subject): unknown {
  const { kind, element, fields, nullableVersions } = field;
  const isLegal = BY_NAME[name] !== null || inVersions(nullableVersions, version);
  if (Object.hasOwn(BY_NAME, name) && isLegal) return BY_NAME[name];
  if (kind === 'struct') return structOf(fields ?? {}, version, subject);
  if (kind !== 'array') return scalar(name, kind, subject);
  return [
    element === undefined
      ? structOf(fields ?? {}, version, subject)
      : scalar(name, element, subject),
  ];
}

function structOf(fields: Fields, version: number, subject: Subject): Record<string, unknown> {
  const entries = Object.entries(fields as Record<string, FieldSpec>)
    .filter(([, field]) => inVersions(field.versions, version))
    .filter(([, field]) => !inVersions(field.taggedVersions, version))
    .map(([name, field]) => [name, valueFor(name, field, version, subject)]);
  return Object.fromEntries(entries);
}

/** A request of `schema` in `version`. */
export function sampleRequest(
  schema: Message,
  version: number,
  subject: Subject,
): EncodableOf<Message> {
  return structOf(schema.fields, version, subject) as EncodableOf<Message>;
}
