/**
 * Kafka's error codes: number, whether a client should retry, and a sentence of ours.
 *
 * Protocol errors are data: handlers return them per item, nothing throws them. Codes −1 to 133 are
 * those of Apache Kafka 4.2 (a test compares them); twinlog adds none of its own, as released
 * clients would not know them. A write to a read-only topic is POLICY_VIOLATION (rule R3).
 */

const table = {
  UNKNOWN_SERVER_ERROR: [-1, false, 'the broker failed unexpectedly'],
  NONE: [0, false, 'no error'],
  OFFSET_OUT_OF_RANGE: [1, false, "offset outside the partition's log"],
  CORRUPT_MESSAGE: [2, true, 'record batch is damaged or not acceptable'],
  UNKNOWN_TOPIC_OR_PARTITION: [3, true, 'no such topic or partition here'],
  INVALID_FETCH_SIZE: [4, false, 'fetch size is not usable'],
  LEADER_NOT_AVAILABLE: [5, true, 'the partition has no leader at the moment'],
  NOT_LEADER_OR_FOLLOWER: [6, true, 'this broker does not lead, or does not hold, the partition'],
  REQUEST_TIMED_OUT: [7, true, 'not done within the time limit'],
  BROKER_NOT_AVAILABLE: [8, false, 'broker cannot be reached'],
  REPLICA_NOT_AVAILABLE: [9, true, 'replica cannot serve the request'],
  MESSAGE_TOO_LARGE: [10, false, 'record batch larger than the topic allows'],
  STALE_CONTROLLER_EPOCH: [11, false, 'controller epoch is out of date'],
  OFFSET_METADATA_TOO_LARGE: [12, false, 'offset metadata is too long'],
  NETWORK_EXCEPTION: [13, true, 'connection ended before the answer'],
  COORDINATOR_LOAD_IN_PROGRESS: [14, true, 'coordinator is still loading its log'],
  COORDINATOR_NOT_AVAILABLE: [15, true, 'no coordinator available'],
  NOT_COORDINATOR: [16, true, 'another broker is the coordinator'],
  INVALID_TOPIC_EXCEPTION: [17, false, 'topic name or operation is not allowed'],
  RECORD_LIST_TOO_LARGE: [18, false, 'batch larger than a log segment'],
  NOT_ENOUGH_REPLICAS: [19, true, 'fewer in-sync replicas than min.insync.replicas'],
  NOT_ENOUGH_REPLICAS_AFTER_APPEND: [20, true, 'appended, but too few replicas are in sync'],
  INVALID_REQUIRED_ACKS: [21, false, 'acks must be -1, 0 or 1'],
  ILLEGAL_GENERATION: [22, false, "generation is not the group's current one"],
  INCONSISTENT_GROUP_PROTOCOL: [23, false, 'member shares no protocol with the group'],
  INVALID_GROUP_ID: [24, false, 'group id is not usable'],
  UNKNOWN_MEMBER_ID: [25, false, 'no such member in the group'],
  INVALID_SESSION_TIMEOUT: [26, false, 'session timeout outside the allowed range'],
  REBALANCE_IN_PROGRESS: [27, false, 'group is rebalancing: join again'],
  INVALID_COMMIT_OFFSET_SIZE: [28, false, 'offset commit record would be too large'],
  TOPIC_AUTHORIZATION_FAILED: [29, false, 'no permission for the topic'],
  GROUP_AUTHORIZATION_FAILED: [30, false, 'no permission for the group'],
  CLUSTER_AUTHORIZATION_FAILED: [31, false, 'no permission for the cluster'],
  INVALID_TIMESTAMP: [32, false, 'record timestamp outside the allowed range'],
  UNSUPPORTED_SASL_MECHANISM: [33, false, 'SASL mechanism is not enabled'],
  ILLEGAL_SASL_STATE: [34, false, 'SASL exchange is not at this step'],
  UNSUPPORTED_VERSION: [35, false, 'API version is not supported'],
  TOPIC_ALREADY_EXISTS: [36, false, 'topic exists already'],
  INVALID_PARTITIONS: [37, false, 'partition count is not possible'],
  INVALID_REPLICATION_FACTOR: [38, false, 'replication factor is not possible'],
  INVALID_REPLICA_ASSIGNMENT: [39, false, 'replica assignment is not possible'],
  INVALID_CONFIG: [40, false, 'configuration is not valid'],
  NOT_CONTROLLER: [41, true, 'this node is not the active controller'],
  INVALID_REQUEST: [42, false, 'request is not valid'],
  UNSUPPORTED_FOR_MESSAGE_FORMAT: [43, false, 'message format does not allow the request'],
  POLICY_VIOLATION: [44, false, 'refused by policy'],
  OUT_OF_ORDER_SEQUENCE_NUMBER: [45, false, 'producer sequence has a gap'],
  DUPLICATE_SEQUENCE_NUMBER: [46, false, 'producer sequence was appended before'],
  INVALID_PRODUCER_EPOCH: [47, false, 'producer epoch is out of date'],
  INVALID_TXN_STATE: [48, false, 'transaction is not in a state for this'],
  INVALID_PRODUCER_ID_MAPPING: [49, false, 'producer id does not belong to the transactional id'],
  INVALID_TRANSACTION_TIMEOUT: [50, false, 'transaction timeout above the maximum'],
  CONCURRENT_TRANSACTIONS: [51, true, 'transaction is busy with another operation'],
  TRANSACTION_COORDINATOR_FENCED: [52, false, 'a newer transaction coordinator took over'],
  TRANSACTIONAL_ID_AUTHORIZATION_FAILED: [53, false, 'no permission for the transactional id'],
  SECURITY_DISABLED: [54, false, 'no authorizer is configured'],
  OPERATION_NOT_ATTEMPTED: [55, false, 'skipped, because another part of the request failed'],
  KAFKA_STORAGE_ERROR: [56, true, 'storage failed'],
  LOG_DIR_NOT_FOUND: [57, false, 'no such log directory on the broker'],
  SASL_AUTHENTICATION_FAILED: [58, false, 'SASL authentication failed'],
  UNKNOWN_PRODUCER_ID: [59, false, 'producer id is not known for the partition'],
  REASSIGNMENT_IN_PROGRESS: [60, false, 'reassignment of the partition is under way'],
  DELEGATION_TOKEN_AUTH_DISABLED: [61, false, 'delegation tokens are not enabled'],
  DELEGATION_TOKEN_NOT_FOUND: [62, false, 'no such delegation token'],
  DELEGATION_TOKEN_OWNER_MISMATCH: [63, false, 'principal may not renew or expire the token'],
  DELEGATION_TOKEN_REQUEST_NOT_ALLOWED: [
    64,
    false,
    'delegation tokens cannot be asked for on this connection',
  ],
  DELEGATION_TOKEN_AUTHORIZATION_FAILED: [65, false, 'no permission for the delegation token'],
  DELEGATION_TOKEN_EXPIRED: [66, false, 'delegation token has expired'],
  INVALID_PRINCIPAL_TYPE: [67, false, 'principal type is not supported'],
  NON_EMPTY_GROUP: [68, false, 'group still has members'],
  GROUP_ID_NOT_FOUND: [69, false, 'no such group'],
  FETCH_SESSION_ID_NOT_FOUND: [70, true, 'fetch session is not known'],
  INVALID_FETCH_SESSION_EPOCH: [71, true, 'fetch session epoch does not follow'],
  LISTENER_NOT_FOUND: [72, true, 'leader has no such listener'],
  TOPIC_DELETION_DISABLED: [73, false, 'topic deletion is turned off'],
  FENCED_LEADER_EPOCH: [74, true, "leader epoch is older than the partition's"],
  UNKNOWN_LEADER_EPOCH: [75, true, "leader epoch is newer than the partition's"],
  UNSUPPORTED_COMPRESSION_TYPE: [76, false, 'compression type is not supported for the request'],
  STALE_BROKER_EPOCH: [77, false, 'broker epoch is out of date'],
  OFFSET_NOT_AVAILABLE: [78, true, 'offset is not yet safe to give after an election'],
  MEMBER_ID_REQUIRED: [79, false, 'join again with the given member id'],
  PREFERRED_LEADER_NOT_AVAILABLE: [80, true, 'preferred leader is not available'],
  GROUP_MAX_SIZE_REACHED: [81, false, 'group has as many members as allowed'],
  FENCED_INSTANCE_ID: [82, false, 'another member took over the group instance id'],
  ELIGIBLE_LEADERS_NOT_AVAILABLE: [83, true, 'no replica may become leader'],
  ELECTION_NOT_NEEDED: [84, true, 'partition has the wanted leader already'],
  NO_REASSIGNMENT_IN_PROGRESS: [85, false, 'no reassignment is under way'],
  GROUP_SUBSCRIBED_TO_TOPIC: [86, false, 'group is still subscribed to the topic'],
  INVALID_RECORD: [87, false, 'record was refused'],
  UNSTABLE_OFFSET_COMMIT: [88, true, 'a transaction on these offsets is still open'],
  THROTTLING_QUOTA_EXCEEDED: [89, true, 'quota is used up'],
  PRODUCER_FENCED: [90, false, 'a newer producer took over the transactional id'],
  RESOURCE_NOT_FOUND: [91, false, 'no such resource'],
  DUPLICATE_RESOURCE: [92, false, 'resource named twice'],
  UNACCEPTABLE_CREDENTIAL: [93, false, 'credential is not acceptable'],
  INCONSISTENT_VOTER_SET: [94, false, 'voter sets differ'],
  INVALID_UPDATE_VERSION: [95, false, 'update version is not valid'],
  FEATURE_UPDATE_FAILED: [96, false, 'feature could not be changed'],
  PRINCIPAL_DESERIALIZATION_FAILURE: [97, false, 'forwarded principal could not be read'],
  SNAPSHOT_NOT_FOUND: [98, false, 'no such snapshot'],
  POSITION_OUT_OF_RANGE: [99, false, 'position outside the snapshot'],
  UNKNOWN_TOPIC_ID: [100, true, 'no such topic id here'],
  DUPLICATE_BROKER_REGISTRATION: [101, false, 'broker id is in use by another broker'],
  BROKER_ID_NOT_REGISTERED: [102, false, 'broker id is not registered'],
  INCONSISTENT_TOPIC_ID: [103, true, "topic id differs from the log's"],
  INCONSISTENT_CLUSTER_ID: [104, false, "cluster id differs from this cluster's"],
  TRANSACTIONAL_ID_NOT_FOUND: [105, false, 'no such transactional id'],
  FETCH_SESSION_TOPIC_ID_ERROR: [106, true, 'fetch session mixes topic names and ids'],
  INELIGIBLE_REPLICA: [107, false, 'a replica may not join the in-sync set'],
  NEW_LEADER_ELECTED: [108, false, 'done, but the partition has a new leader'],
  OFFSET_MOVED_TO_TIERED_STORAGE: [109, false, 'offset lives in tiered storage'],
  FENCED_MEMBER_EPOCH: [110, false, 'member epoch is fenced: join again'],
  UNRELEASED_INSTANCE_ID: [111, false, 'group instance id is still in use'],
  UNSUPPORTED_ASSIGNOR: [112, false, 'assignor is not supported'],
  STALE_MEMBER_EPOCH: [113, false, 'member epoch is out of date'],
  MISMATCHED_ENDPOINT_TYPE: [114, false, 'sent to the wrong kind of endpoint'],
  UNSUPPORTED_ENDPOINT_TYPE: [115, false, 'kind of endpoint is not supported'],
  UNKNOWN_CONTROLLER_ID: [116, false, 'no such controller'],
  UNKNOWN_SUBSCRIPTION_ID: [117, false, 'telemetry subscription is out of date'],
  TELEMETRY_TOO_LARGE: [118, false, 'telemetry is too large'],
  INVALID_REGISTRATION: [119, false, 'broker registration is not acceptable'],
  TRANSACTION_ABORTABLE: [120, false, 'transaction can only be aborted'],
  INVALID_RECORD_STATE: [121, false, 'share record is not in a state for this'],
  SHARE_SESSION_NOT_FOUND: [122, true, 'share session is not known'],
  INVALID_SHARE_SESSION_EPOCH: [123, true, 'share session epoch does not follow'],
  FENCED_STATE_EPOCH: [124, false, 'state epoch is out of date'],
  INVALID_VOTER_KEY: [125, false, "voter key differs from this replica's"],
  DUPLICATE_VOTER: [126, false, 'voter is in the set already'],
  VOTER_NOT_FOUND: [127, false, 'voter is not in the set'],
  INVALID_REGULAR_EXPRESSION: [128, false, 'regular expression is not valid'],
  REBOOTSTRAP_REQUIRED: [129, false, 'metadata is stale: start again from the bootstrap servers'],
  STREAMS_INVALID_TOPOLOGY: [130, false, 'topology is not valid'],
  STREAMS_INVALID_TOPOLOGY_EPOCH: [131, false, 'topology epoch is not valid'],
  STREAMS_TOPOLOGY_FENCED: [132, false, 'topology epoch is out of date'],
  SHARE_SESSION_LIMIT_REACHED: [133, true, 'no more share sessions are allowed'],
} as const;

type Table = typeof table;

/** The name of an error, as in Kafka's documentation. */
export type ErrorName = keyof Table;
/** A known error code. */
export type ErrorCode = Table[ErrorName][0];

const names = Object.keys(table) as ErrorName[];

/** One error: what handlers, clients and logs need to know of it. */
export interface ErrorRow<C extends ErrorCode = ErrorCode> {
  readonly code: C;
  readonly name: ErrorName;
  /** Whether the same request may succeed later. */
  readonly retriable: boolean;
  /** A short default message, for responses that carry one and for logs. */
  readonly message: string;
}

/** All errors by name: `errors.NOT_COORDINATOR.code`. */
export const errors = Object.freeze(
  Object.fromEntries(
    names.map((name) => {
      const [code, retriable, message] = table[name];
      return [name, Object.freeze({ code, name, retriable, message })];
    }),
  ),
) as { readonly [N in ErrorName]: ErrorRow<Table[N][0]> };

/** The codes alone: `ErrorCode.NOT_COORDINATOR`. */
export const ErrorCode = Object.freeze(
  Object.fromEntries(names.map((name) => [name, table[name][0]])),
) as { readonly [N in ErrorName]: Table[N][0] };

const byCode = new Map<number, ErrorRow>(names.map((name) => [table[name][0], errors[name]]));

/** The row of a code from the wire; undefined for one we do not know. */
export function errorOf(code: number): ErrorRow | undefined {
  return byCode.get(code);
}

/** The name of a code, or the number in words for one we do not know: for messages and logs. */
export function errorName(code: number): string {
  return byCode.get(code)?.name ?? `error code ${code}`;
}

/** The default message of a code. */
export function errorMessage(code: number): string {
  return byCode.get(code)?.message ?? `error code ${code}`;
}

/** Whether a code is worth a retry; unknown ones are not. */
export function isRetriable(code: number): boolean {
  return byCode.get(code)?.retriable === true;
}
