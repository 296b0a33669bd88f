/**
 * Every API that a guest in an Apache Kafka cluster serves: those that ordinary clients may send to
 * any broker, and those of its followers and of transaction coordinators.
 *
 * Handlers shared with the embedded broker are in `handlers/`, a guest's own in `guest-handlers/`.
 * Left out of what Apache Kafka 4.2 offers: telemetry (71, 72), as there without a receiver; and
 * the state of share groups (83–87), which brokers ask of its coordinators alone.
 */
import { type ApiTable, type ListedApi, listed } from './api-handler.ts';
import { produce } from './guest-handlers/00-produce.ts';
import { metadata } from './guest-handlers/03-metadata.ts';
import { findCoordinator } from './guest-handlers/10-find-coordinator.ts';
import { initProducerId } from './guest-handlers/22-init-producer-id.ts';
import { writeTxnMarkers } from './guest-handlers/27-write-txn-markers.ts';
import { describeClientQuotas } from './guest-handlers/48-describe-client-quotas.ts';
import { coordinatorApis } from './guest-handlers/coordinators.ts';
import { forwardedApis } from './guest-handlers/forwarded.ts';
import { listingApis } from './guest-handlers/listings.ts';
import { logDirApis } from './guest-handlers/log-dirs.ts';
import { securityApis } from './guest-handlers/security.ts';
import { shareRecordApis } from './guest-handlers/share-records.ts';
import { fetch } from './handlers/01-fetch.ts';
import { listOffsets } from './handlers/02-list-offsets.ts';
import { offsetCommit } from './handlers/08-offset-commit.ts';
import { offsetFetch } from './handlers/09-offset-fetch.ts';
import { joinGroup } from './handlers/11-join-group.ts';
import { heartbeat } from './handlers/12-heartbeat.ts';
import { leaveGroup } from './handlers/13-leave-group.ts';
import { syncGroup } from './handlers/14-sync-group.ts';
import { describeGroups } from './handlers/15-describe-groups.ts';
import { listGroups } from './handlers/16-list-groups.ts';
import { saslHandshake } from './handlers/17-sasl-handshake.ts';
import { apiVersions } from './handlers/18-api-versions.ts';
import { deleteRecords } from './handlers/21-delete-records.ts';
import { offsetForLeaderEpoch } from './handlers/23-offset-for-leader-epoch.ts';
import { describeConfigs } from './handlers/32-describe-configs.ts';
import { saslAuthenticate } from './handlers/36-sasl-authenticate.ts';
import { deleteGroups } from './handlers/42-delete-groups.ts';
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

const handlers = [
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
  deleteRecords,
  initProducerId,
  offsetForLeaderEpoch,
  writeTxnMarkers,
  describeConfigs,
  deleteGroups,
  offsetDelete,
  describeClientQuotas,
  describeCluster,
  describeProducers,
  describeTopicPartitions,
  createMirror,
  addTopicsToMirror,
  removeTopicsFromMirror,
  lastMirroredOffsets,
  listMirrors,
  describeMirrors,
  ...coordinatorApis,
  ...forwardedApis,
  ...listingApis,
  ...logDirApis,
  ...securityApis,
  ...shareRecordApis,
];

/** Handlers by API key. */
export const guestApiTable: ApiTable = new Map(
  handlers.map((handler) => [handler.apiKey, handler]),
);

/** What ApiVersions lists while the controllers' own versions are not known. */
export const guestListedApis: readonly ListedApi[] = listed(handlers);

const forwardedKeys = new Set(forwardedApis.map(({ apiKey }) => apiKey));

/**
 * What ApiVersions lists when the active controller serves `controllerApis`: of what is forwarded
 * only what both know, as Apache brokers do.
 */
export function guestApisWith(controllerApis: readonly ListedApi[]): ListedApi[] {
  const theirs = new Map(controllerApis.map((api) => [api.apiKey, api]));
  return guestListedApis.flatMap((api) => {
    if (!forwardedKeys.has(api.apiKey)) return [api];
    const their = theirs.get(api.apiKey);
    if (their === undefined) return [];
    const minVersion = Math.max(api.minVersion, their.minVersion);
    const maxVersion = Math.min(api.maxVersion, their.maxVersion);
    return minVersion > maxVersion ? [] : [{ apiKey: api.apiKey, minVersion, maxVersion }];
  });
}
