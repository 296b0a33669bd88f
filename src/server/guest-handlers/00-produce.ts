/**
 * Produce in guest mode: refused, as a guest leads nothing that takes writes of clients (rule R3).
 *
 * - A mirrored topic's refusal is that of `Partition.append`, POLICY_VIOLATION.
 * - A topic that is not mirrored has strayed here (rule G8): NOT_LEADER_OR_FOLLOWER until it is
 *   moved away, so that its producers wait.
 * - After a failover the partition waits for its move to an Apache broker. Transactions wait with
 *   it, as nobody here could ask their coordinator about them.
 */
import { errors } from '../../protocol/errors.ts';
import { produceHandler } from '../handlers/00-produce.ts';

/** API 0. */
export const produce = produceHandler(({ metadata }, { topic, isTransactional }) => {
  const { image } = metadata;
  if (!image.topicsByName.has(topic)) return undefined;
  const membership = image.membership(topic);
  const takesWrites = membership === undefined || (membership.removed && isTransactional);
  return takesWrites ? errors.NOT_LEADER_OR_FOLLOWER.code : undefined;
});
