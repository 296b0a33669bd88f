/**
 * Who may be in the ISR of a partition besides its leader (rule G18).
 *
 * Given to the replica manager by the composition root and asked by `in-sync-replicas.ts`, at each
 * change and each follower's fetch, so an answer must come from memory. The leader itself is never
 * asked about: an ISR is never proposed empty. Whoever changes its mind calls
 * `ReplicaManager.reviewIsr`.
 */
import type { Uuid } from '../base/uuid.ts';

/** See the file header. */
export interface IsrPolicy {
  /** False: a replica that is in is taken out at once, also when it does not lag. */
  mayJoin(topicId: Uuid, partition: number, replicaId: number): boolean;
}

/** Kafka's own rule: whoever has caught up. */
export const EVERYONE_MAY_JOIN: IsrPolicy = { mayJoin: () => true };
