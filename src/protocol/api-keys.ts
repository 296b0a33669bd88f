/**
 * API keys by name, and which header version surrounds each version of each API.
 *
 * Requests have header version 1 (client id) or, where the API version is flexible, 2 (tagged
 * fields); responses 0 or 1 accordingly. An ApiVersions response always has header version 0, as
 * the client that reads it may not know the version yet. All of Kafka 4.2's APIs are listed,
 * served or not, so that requests, metrics and logs can be named. Keys 12790 and up are ours.
 */

/** Flexible from no version on. */
const NEVER = 0x7fff;

/** Name → [API key, first flexible version]. */
const table = {
  Produce: [0, 9],
  Fetch: [1, 12],
  ListOffsets: [2, 6],
  Metadata: [3, 9],
  LeaderAndIsr: [4, NEVER],
  StopReplica: [5, NEVER],
  UpdateMetadata: [6, NEVER],
  ControlledShutdown: [7, NEVER],
  OffsetCommit: [8, 8],
  OffsetFetch: [9, 6],
  FindCoordinator: [10, 3],
  JoinGroup: [11, 6],
  Heartbeat: [12, 4],
  LeaveGroup: [13, 4],
  SyncGroup: [14, 4],
  DescribeGroups: [15, 5],
  ListGroups: [16, 3],
  SaslHandshake: [17, NEVER],
  ApiVersions: [18, 3],
  CreateTopics: [19, 5],
  DeleteTopics: [20, 4],
  DeleteRecords: [21, 2],
  InitProducerId: [22, 2],
  OffsetForLeaderEpoch: [23, 4],
  AddPartitionsToTxn: [24, 3],
  AddOffsetsToTxn: [25, 3],
  EndTxn: [26, 3],
  WriteTxnMarkers: [27, 1],
  TxnOffsetCommit: [28, 3],
  DescribeAcls: [29, 2],
  CreateAcls: [30, 2],
  DeleteAcls: [31, 2],
  DescribeConfigs: [32, 4],
  AlterConfigs: [33, 2],
  AlterReplicaLogDirs: [34, 2],
  DescribeLogDirs: [35, 2],
  SaslAuthenticate: [36, 2],
  CreatePartitions: [37, 2],
  CreateDelegationToken: [38, 2],
  RenewDelegationToken: [39, 2],
  ExpireDelegationToken: [40, 2],
  DescribeDelegationToken: [41, 2],
  DeleteGroups: [42, 2],
  ElectLeaders: [43, 2],
  IncrementalAlterConfigs: [44, 1],
  AlterPartitionReassignments: [45, 0],
  ListPartitionReassignments: [46, 0],
  OffsetDelete: [47, NEVER],
  DescribeClientQuotas: [48, 1],
  AlterClientQuotas: [49, 1],
  DescribeUserScramCredentials: [50, 0],
  AlterUserScramCredentials: [51, 0],
  Vote: [52, 0],
  BeginQuorumEpoch: [53, 1],
  EndQuorumEpoch: [54, 1],
  DescribeQuorum: [55, 0],
  AlterPartition: [56, 0],
  UpdateFeatures: [57, 0],
  Envelope: [58, 0],
  FetchSnapshot: [59, 0],
  DescribeCluster: [60, 0],
  DescribeProducers: [61, 0],
  BrokerRegistration: [62, 0],
  BrokerHeartbeat: [63, 0],
  UnregisterBroker: [64, 0],
  DescribeTransactions: [65, 0],
  ListTransactions: [66, 0],
  AllocateProducerIds: [67, 0],
  ConsumerGroupHeartbeat: [68, 0],
  ConsumerGroupDescribe: [69, 0],
  ControllerRegistration: [70, 0],
  GetTelemetrySubscriptions: [71, 0],
  PushTelemetry: [72, 0],
  AssignReplicasToDirs: [73, 0],
  ListConfigResources: [74, 0],
  DescribeTopicPartitions: [75, 0],
  ShareGroupHeartbeat: [76, 0],
  ShareGroupDescribe: [77, 0],
  ShareFetch: [78, 0],
  ShareAcknowledge: [79, 0],
  AddRaftVoter: [80, 0],
  RemoveRaftVoter: [81, 0],
  UpdateRaftVoter: [82, 0],
  InitializeShareGroupState: [83, 0],
  ReadShareGroupState: [84, 0],
  WriteShareGroupState: [85, 0],
  DeleteShareGroupState: [86, 0],
  ReadShareGroupStateSummary: [87, 0],
  StreamsGroupHeartbeat: [88, 0],
  StreamsGroupDescribe: [89, 0],
  DescribeShareGroupOffsets: [90, 0],
  AlterShareGroupOffsets: [91, 0],
  DeleteShareGroupOffsets: [92, 0],
  CreateMirror: [12790, 0],
  AddTopicsToMirror: [12791, 0],
  RemoveTopicsFromMirror: [12792, 0],
  LastMirroredOffsets: [12793, 0],
  ListMirrors: [12794, 0],
  DescribeMirrors: [12795, 0],
  ReadMirrorStates: [12796, 0],
  WriteMirrorStates: [12797, 0],
} as const;

type Table = typeof table;

/** The name of an API. */
export type ApiName = keyof Table;
/** A known API key. */
export type ApiKey = Table[ApiName][0];

const names = Object.keys(table) as ApiName[];
const byKey = new Map<number, ApiName>(names.map((name) => [table[name][0], name]));

/** Keys by name: `ApiKey.Fetch`. */
export const ApiKey = Object.freeze(
  Object.fromEntries(names.map((name) => [name, table[name][0]])),
) as { readonly [N in ApiName]: Table[N][0] };

/** The name of a key from the wire; undefined for one we do not know. */
export function apiName(apiKey: number): ApiName | undefined {
  return byKey.get(apiKey);
}

/** Whether a version of an API is flexible; versions beyond what we know are taken to be. */
export function isFlexible(apiKey: number, apiVersion: number): boolean {
  const name = byKey.get(apiKey);
  return name !== undefined && apiVersion >= table[name][1];
}

/** The version of the header before a request. */
export function requestHeaderVersion(apiKey: number, apiVersion: number): 1 | 2 {
  return isFlexible(apiKey, apiVersion) ? 2 : 1;
}

/** The version of the header before a response. */
export function responseHeaderVersion(apiKey: number, apiVersion: number): 0 | 1 {
  return apiKey !== ApiKey.ApiVersions && isFlexible(apiKey, apiVersion) ? 1 : 0;
}
