/**
 * Whether the guest's principal may do what a guest does (G34), each right tried by a request that
 * cannot change anything.
 *
 * The last step of `twinlog guest check`. What is sent is refused for its content even where it is
 * allowed (no topic, an unknown one, validation only), so that only the error code counts: the
 * authorization error, or any other. Who else may write the mirror state is read from the ACLs
 * (G22). Nothing here needs the guest to be registered.
 */

import { ConfigResourceType } from '../../metadata/image.ts';
import type { HostPort } from '../../metadata/quorum/probe.ts';
import { MIRROR_STATE_TOPIC } from '../../mirror/state-row.ts';
import { errors } from '../../protocol/errors.ts';
import { ConnectionError, type KafkaConnection } from '../../protocol/kafka-connection.ts';
import { ProduceRequest, ProduceResponse } from '../../protocol/messages/00-produce.ts';
import { FetchRequest, FetchResponse } from '../../protocol/messages/01-fetch.ts';
import {
  OffsetCommitRequest,
  OffsetCommitResponse,
} from '../../protocol/messages/08-offset-commit.ts';
import {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../../protocol/messages/19-create-topics.ts';
import { EndTxnRequest, EndTxnResponse } from '../../protocol/messages/26-end-txn.ts';
import {
  DescribeAclsRequest,
  DescribeAclsResponse,
} from '../../protocol/messages/29-describe-acls.ts';
import {
  IncrementalAlterConfigsRequest,
  IncrementalAlterConfigsResponse,
} from '../../protocol/messages/44-incremental-alter-configs.ts';
import {
  AlterPartitionReassignmentsRequest,
  AlterPartitionReassignmentsResponse,
} from '../../protocol/messages/45-alter-partition-reassignments.ts';
import {
  AlterPartitionRequest,
  AlterPartitionResponse,
} from '../../protocol/messages/56-alter-partition.ts';
import { buildRecordBatch } from '../../protocol/record.ts';
import { GUEST_CONFIG } from '../guest-brokers.ts';
import { transactionalIdOf } from '../state/state-topic.ts';
import { type Check, listed, ok, problem, warning } from './check.ts';
import { refusal } from './check-brokers.ts';

/** Who a connection without authentication is to an Apache broker. */
export const ANONYMOUS = 'User:ANONYMOUS';
/** A topic and a group that nobody has. */
const NOBODYS = 'twinlog-guest-check';
/** The last versions that name topics, not their ids. */
const LAST_NAMED = { produce: 12, fetch: 12, commit: 9 } as const;
const NO_PARTITION = 0x7fffffff;
const NO_PRODUCER = -1n;
const TOPIC = 2;
const MATCH = 2;
const ANY = 1;
const ALLOW = 3;
const DENY = 2;
const WRITING_OPERATIONS: ReadonlyMap<number, string> = new Map([
  [2, 'All'],
  [4, 'Write'],
  [6, 'Delete'],
]);
const TIMEOUT_MS = 10_000;
const SET = 0;

/** A right, how it is granted, and how it is tried. */
interface Right {
  readonly name: string;
  /** Without it: what a guest cannot do. */
  readonly purpose: string;
  /** Options of kafka-acls.sh. */
  readonly grant: string;
  /** Only part of what a guest does needs it. */
  readonly optional?: true;
  /** The error code that a harmless request is answered. */
  readonly attempt: (connection: KafkaConnection) => Promise<number>;
}

/** Errors that mean a missing right. */
const DENIED: ReadonlySet<number> = new Set([
  errors.TOPIC_AUTHORIZATION_FAILED.code,
  errors.GROUP_AUTHORIZATION_FAILED.code,
  errors.CLUSTER_AUTHORIZATION_FAILED.code,
  errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code,
]);

function alterConfigs(type: number, name: string, config: string) {
  return async (connection: KafkaConnection): Promise<number> => {
    const configs = [{ name: config, configOperation: SET, value: '1' }];
    const { responses } = await connection.send(
      IncrementalAlterConfigsRequest,
      IncrementalAlterConfigsResponse,
      {
        resources: [{ resourceType: type, resourceName: name, configs }],
        validateOnly: true,
      },
    );
    return responses[0]?.errorCode ?? 0;
  };
}

/** What the guest asks of controllers. */
const CONTROLLER_RIGHTS: readonly Right[] = [
  {
    name: 'CLUSTER_ACTION on the cluster',
    purpose: 'be a broker: register, follow the metadata, forward requests of clients',
    grant: '--operation ClusterAction --cluster',
    attempt: async (connection) => {
      const nobody = { brokerId: -1, topics: [] };
      const answer = await connection.send(AlterPartitionRequest, AlterPartitionResponse, nobody);
      return answer.errorCode;
    },
  },
  {
    name: 'ALTER on the cluster',
    purpose: 'hand mirror topics over',
    grant: '--operation Alter --cluster',
    attempt: async (connection) => {
      const { errorCode } = await connection.send(
        AlterPartitionReassignmentsRequest,
        AlterPartitionReassignmentsResponse,
        { timeoutMs: TIMEOUT_MS, topics: [] },
      );
      return errorCode;
    },
  },
  {
    name: 'CREATE on the cluster',
    purpose: 'make mirror topics',
    grant: '--operation Create --cluster',
    attempt: async (connection) => {
      const topic = { name: NOBODYS, numPartitions: 1, replicationFactor: -1 };
      const { topics } = await connection.send(
        CreateTopicsRequest,
        CreateTopicsResponse,
        {
          topics: [{ ...topic, assignments: [], configs: [] }],
          timeoutMs: TIMEOUT_MS,
          validateOnly: true,
        },
        { maxVersion: 7 },
      );
      return topics[0]?.errorCode ?? 0;
    },
  },
  {
    name: 'ALTER_CONFIGS on the cluster',
    purpose: 'say that it is a guest',
    grant: '--operation AlterConfigs --cluster',
    attempt: alterConfigs(ConfigResourceType.BROKER, '', GUEST_CONFIG),
  },
  {
    name: 'ALTER_CONFIGS on topics',
    purpose: 'lock mirror topics, and give them their settings back',
    grant: "--operation AlterConfigs --topic '*'",
    attempt: alterConfigs(ConfigResourceType.TOPIC, NOBODYS, 'min.insync.replicas'),
  },
];

/** Writes to a partition that no topic has. */
async function tryProduce(connection: KafkaConnection): Promise<number> {
  const records = [{ key: null, value: null, timestamp: 0, headers: [] }];
  const producer = { producerId: NO_PRODUCER, producerEpoch: -1, baseSequence: -1 };
  const batch = buildRecordBatch({ records, ...producer });
  const partitionData = [{ index: NO_PARTITION, records: batch }];
  const { responses } = await connection.send(
    ProduceRequest,
    ProduceResponse,
    {
      transactionalId: null,
      acks: -1,
      timeoutMs: TIMEOUT_MS,
      topicData: [{ name: MIRROR_STATE_TOPIC, partitionData }],
    },
    { maxVersion: LAST_NAMED.produce },
  );
  return responses[0]?.partitionResponses[0]?.errorCode ?? 0;
}

/** Reads a partition that no topic has. */
async function tryFetch(connection: KafkaConnection): Promise<number> {
  const partition = { partition: NO_PARTITION, fetchOffset: 0, partitionMaxBytes: 1 };
  const { responses } = await connection.send(
    FetchRequest,
    FetchResponse,
    {
      maxWaitMs: 0,
      minBytes: 0,
      maxBytes: 1,
      isolationLevel: 0,
      topics: [{ topic: MIRROR_STATE_TOPIC, partitions: [partition] }],
      forgottenTopicsData: [],
    },
    { maxVersion: LAST_NAMED.fetch },
  );
  return responses[0]?.partitions[0]?.errorCode ?? 0;
}

/** What the guest asks of brokers, as any client does. */
function brokerRights(nodeId: number): readonly Right[] {
  return [
    {
      name: 'READ and WRITE on __mirror_state',
      purpose: 'keep the mirror state',
      grant: `--operation Read --operation Write --topic ${MIRROR_STATE_TOPIC}`,
      attempt: async (connection) => {
        const written = await tryProduce(connection);
        return DENIED.has(written) ? written : await tryFetch(connection);
      },
    },
    {
      name: 'WRITE on transactional ids',
      purpose: 'write the mirror state',
      grant:
        '--operation Write --operation Describe --resource-pattern-type prefixed ' +
        `--transactional-id ${transactionalIdOf(0).slice(0, -1)}`,
      attempt: async (connection) => {
        const { errorCode } = await connection.send(EndTxnRequest, EndTxnResponse, {
          transactionalId: transactionalIdOf(nodeId),
          producerId: -1n,
          producerEpoch: -1,
          committed: false,
        });
        return errorCode;
      },
    },
    {
      name: 'READ on groups and topics',
      purpose: 'copy the offsets of consumer groups, and compare topics that are taken back',
      grant: "--operation Read --operation Describe --group '*' --topic '*'",
      optional: true,
      attempt: async (connection) => {
        const partition = { partitionIndex: 0, committedOffset: 0, committedMetadata: null };
        const { topics } = await connection.send(
          OffsetCommitRequest,
          OffsetCommitResponse,
          { groupId: NOBODYS, topics: [{ name: NOBODYS, partitions: [partition] }] },
          { maxVersion: LAST_NAMED.commit },
        );
        return topics[0]?.partitions[0]?.errorCode ?? 0;
      },
    },
  ];
}

/** Whom to ask. */
export interface RightsQuestion {
  /** The active controller, and a broker if one can be reached. */
  readonly controller: KafkaConnection;
  readonly broker: KafkaConnection | undefined;
  /** As the cluster's ACLs name the guest. */
  readonly principal: string;
  readonly nodeId: number;
  /** What kafka-acls.sh is to connect to. */
  readonly acls: string;
}

/** As a shell takes it: names from certificates have spaces and more in them. */
function quoted(word: string): string {
  return /^[\w:.@%+=,/-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`;
}

async function tryRight(
  right: Right,
  connection: KafkaConnection,
  { principal, acls }: RightsQuestion,
): Promise<Check> {
  const name = `right ${right.name}`;
  let code: number;
  try {
    code = await right.attempt(connection);
  } catch (error) {
    if (!(error instanceof ConnectionError)) throw error;
    return warning(name, `it could not be tried: ${error.message}`, 'Run the check again.');
  }
  if (code === errors.NOT_CONTROLLER.code) {
    const fix = 'Run the check again when the other rights are there.';
    return warning(name, 'it could not be tried at a controller that is not active', fix);
  }
  if (!DENIED.has(code)) return ok(name, `${principal} has it`, { principal });
  const found = `${principal} lacks it, so the guest cannot ${right.purpose}`;
  const fix = `kafka-acls.sh ${acls} --add --allow-principal ${quoted(principal)} ${right.grant}`;
  const check = right.optional ? warning : problem;
  return check(name, found, fix, { principal, error: refusal(code) });
}

/** Tries every right. */
export async function checkRights(question: RightsQuestion): Promise<Check[]> {
  const checks: Check[] = [];
  for (const right of CONTROLLER_RIGHTS) {
    checks.push(await tryRight(right, question.controller, question));
  }
  const { broker } = question;
  for (const right of broker === undefined ? [] : brokerRights(question.nodeId)) {
    checks.push(await tryRight(right, broker as KafkaConnection, question));
  }
  checks.push(await checkWriters(question));
  return checks;
}

/** Whether anybody but the guests may write or delete the mirror state. */
async function checkWriters(question: RightsQuestion): Promise<Check> {
  const { controller, principal, acls } = question;
  const name = `who may write ${MIRROR_STATE_TOPIC}`;
  const answer = await controller.send(DescribeAclsRequest, DescribeAclsResponse, {
    resourceTypeFilter: TOPIC,
    resourceNameFilter: MIRROR_STATE_TOPIC,
    patternTypeFilter: MATCH,
    principalFilter: null,
    hostFilter: null,
    operation: ANY,
    permissionType: ANY,
  });
  if (answer.errorCode === errors.SECURITY_DISABLED.code) {
    const fix =
      'Whoever writes there can make a guest lose or corrupt mirrored data: on a network that ' +
      'others reach, configure an authorizer.';
    return warning(name, 'anyone: the cluster has no authorizer', fix);
  }
  if (answer.errorCode !== errors.NONE.code) {
    const found = `the ACLs cannot be read: ${refusal(answer.errorCode)}`;
    const fix = 'Run the check again when ALTER on the cluster is granted: it is enough.';
    return warning(name, found, fix);
  }
  const all = answer.resources.flatMap((resource) =>
    resource.acls.map((acl) => ({ ...acl, resource: resource.resourceName })),
  );
  const own = new Set([principal, ...deniedToAll(all)]);
  const others = all.filter(
    ({ principal: who, operation, permissionType }) =>
      permissionType === ALLOW && WRITING_OPERATIONS.has(operation) && !own.has(who),
  );
  if (others.length === 0) return ok(name, 'only the guests, and super users');
  const named = quoted(others[0]?.principal ?? '');
  const found = listed(
    others.map((acl) => `${acl.principal} (${WRITING_OPERATIONS.get(acl.operation)})`),
  );
  const fix =
    `Only guests may: kafka-acls.sh ${acls} --add --deny-principal ${named} ` +
    `--operation Write --operation Delete --topic ${MIRROR_STATE_TOPIC}`;
  return problem(name, found, fix);
}

interface Acl {
  readonly principal: string;
  readonly operation: number;
  readonly permissionType: number;
}

/** Principals that are denied both writing and deleting, whatever else they are allowed. */
function deniedToAll(acls: readonly Acl[]): string[] {
  const denied = (operation: number): Set<string> =>
    new Set(
      acls
        .filter((acl) => acl.permissionType === DENY && [2, operation].includes(acl.operation))
        .map(({ principal }) => principal),
    );
  const [write, remove] = [denied(4), denied(6)];
  return [...write].filter((principal) => remove.has(principal));
}

/** The options by which kafka-acls.sh reaches the cluster. */
export function aclsServer(broker: HostPort | undefined, controller: HostPort): string {
  return broker === undefined
    ? `--bootstrap-controller ${controller.host}:${controller.port}`
    : `--bootstrap-server ${broker.host}:${broker.port}`;
}
