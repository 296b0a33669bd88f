/**
 * Lowers group offsets to where a mirrored log was cut (rules B1, G32).
 *
 * The partition drivers call it after a cut: before an episode mirrors on, as other records will
 * stand at those offsets, which such a group would never read; and after a stop, as nothing stands
 * there. Every group is reported with what it had. Repeatable: what is low enough stays.
 */
import type { Runtime } from '../../io/runtime.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import { partitionKey } from '../../storage/topic-partition.ts';
import { isTransient } from './plan.ts';
import type { GroupOffsetSink, PartitionHere } from './ports.ts';

/** How long groups that are not at hand (their coordinator loads) are asked for, in ms. */
export const LOWER_BOUND_MS = 10_000;
/** The same at a stop, which must not wait for groups (D3). */
export const LOWER_AT_STOP_BOUND_MS = 2_000;
/** Pause between two attempts, in ms. */
export const LOWER_RETRY_MS = 250;

/** Errors that may be gone at the next attempt, besides those that pass by themselves. */
const WORTH_ANOTHER: ReadonlySet<number> = new Set<number>([
  errors.NETWORK_EXCEPTION.code,
  errors.REQUEST_TIMED_OUT.code,
]);

/** Lowers what is above an offset; answers why that failed, as a sentence (logged already). */
export type GroupOffsetLowering = (
  partition: PartitionHere,
  offset: number,
  boundMs?: number,
) => Promise<string | undefined>;

/** Makes a {@link GroupOffsetLowering} of the groups behind a sink. */
export function groupOffsetLowering(
  runtime: Pick<Runtime, 'clock' | 'logger'>,
  sink: Pick<GroupOffsetSink, 'lower'>,
): GroupOffsetLowering {
  const { clock, logger } = runtime;
  return async ({ topic, topicId, partition }, offset, boundMs = LOWER_BOUND_MS) => {
    const deadline = clock.monotonicMs() + boundMs;
    for (;;) {
      const { errorCode, lowered } = await sink.lower({ topic, topicId, partition }, offset);
      for (const { groupId, from, left } of lowered) {
        const fields = { group: groupId, topic, partition, from, to: offset };
        if (left === undefined) logger.warn('group offset lowered', fields);
        else logger.warn('group offset is too high', { ...fields, left });
      }
      if (errorCode === errors.NONE.code) return undefined;
      const mayPass = isTransient(errorCode) || WORTH_ANOTHER.has(errorCode);
      if (!mayPass || clock.monotonicMs() + LOWER_RETRY_MS > deadline) {
        const where = partitionKey(topic, partition);
        const text = `group offsets of ${where} above ${offset}: ${errorName(errorCode)}`;
        logger.warn('group offsets not lowered', { topic, partition, problem: text });
        return text;
      }
      await new Promise<void>((resolve) => clock.setTimer(LOWER_RETRY_MS, resolve));
    }
  };
}
