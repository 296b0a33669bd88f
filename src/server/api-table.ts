/**
 * Every API that is served, one line each; `ls handlers` is the same list.
 *
 * What is not here is not offered in ApiVersions, and a request for it closes the connection as in
 * Apache Kafka.
 */
import { type ApiHandler, type ListedApi, listed } from './api-handler.ts';
import { produce } from './handlers/00-produce.ts';
import { fetch } from './handlers/01-fetch.ts';
import { listOffsets } from './handlers/02-list-offsets.ts';
import { metadata } from './handlers/03-metadata.ts';
import { offsetCommit } from './handlers/08-offset-commit.ts';
import { offsetFetch } from './handlers/09-offset-fetch.ts';
import { findCoordinator } from './handlers/10-find-coordinator.ts';
import { joinGroup } from './handlers/11-join-group.ts';
import { heartbeat } from './handlers/12-heartbeat.ts';
import { leaveGroup } from './handlers/13-leave-group.ts';
import { syncGroup } from './handlers/14-sync-group.ts';
import { describeGroups } from './handlers/15-describe-groups.ts';
import { listGroups } from './handlers/16-list-groups.ts';
import { saslHandshake } from './handlers/17-sasl-handshake.ts';
import { apiVersions } from './handlers/18-api-versions.ts';
import { createTopics } from './handlers/19-create-topics.ts';
import { deleteTopics } from './handlers/20-delete-topics.ts';
import { deleteRecords } from './handlers/21-delete-records.ts';
import { initProducerId } from './handlers/22-init-producer-id.ts';
import { offsetForLeaderEpoch } from './handlers/23-offset-for-leader-epoch.ts';
import { describeConfigs } from './handlers/32-describe-configs.ts';
import { saslAuthenticate } from './handlers/36-sasl-authenticate.ts';
import { createPartitions } from './handlers/37-create-partitions.ts';
import { deleteGroups } from './handlers/42-delete-groups.ts';
import { incrementalAlterConfigs } from './handlers/44-incremental-alter-configs.ts';
import { listPartitionReassignments } from './handlers/46-list-partition-reassignments.ts';
import { offsetDelete } from './handlers/47-offset-delete.ts';
import { describeCluster } from './handlers/60-describe-cluster.ts';
import { describeProducers } from './handlers/61-describe-producers.ts';
import { describeTopicPartitions } from './handlers/75-describe-topic-partitions.ts';
import { createMirror } from './handlers/12790-create-mirror.ts';
import { addTopicsToMirror } from './handlers/12791-add-topics-to-mirror.ts';
import { removeTopicsFromMirror } from './handlers/12792-remove-topics-from-mirror.ts';
import { lastMirroredOffsets } from './handlers/12793-last-mirrored-offsets.ts';
import { listMirrors } from './handlers/12794-list-mirrors.ts';
import { describeMirrors } from './handlers/12795-describe-mirrors.ts';
import { readMirrorStates } from './handlers/12796-read-mirror-states.ts';
import { writeMirrorStates } from './handlers/12797-write-mirror-states.ts';

const handlers: readonly ApiHandler[] = [
  produce,
  fetch,
  listOffsets,
  metadata,
  offsetCommit,
  offsetFetch,
  findCoordinator,
  joinGroup,
  heartbeat,
  leaveGroup,
  syncGroup,
  describeGroups,
  listGroups,
  saslHandshake,
  saslAuthenticate,
  apiVersions,
  createTopics,
  deleteTopics,
  deleteRecords,
  initProducerId,
  offsetForLeaderEpoch,
  describeConfigs,
  createPartitions,
  deleteGroups,
  incrementalAlterConfigs,
  listPartitionReassignments,
  offsetDelete,
  describeCluster,
  describeProducers,
  describeTopicPartitions,
  createMirror,
  addTopicsToMirror,
  removeTopicsFromMirror,
  lastMirroredOffsets,
  listMirrors,
  describeMirrors,
  readMirrorStates,
  writeMirrorStates,
];

/** Handlers by API key. */
export const apiTable: ReadonlyMap<number, ApiHandler> = new Map(
  handlers.map((handler) => [handler.apiKey, handler]),
);

/** What ApiVersions lists, in the order of the keys. */
export const listedApis: readonly ListedApi[] = listed(handlers);
