/**
 * Lowers what groups have committed above the ends of rescued logs (G18a, as G32 at a failback).
 *
 * Groups read through the guest, or it copied their offsets: they may be ahead of what the brokers
 * have. Other records will stand at those offsets, which such a group would never read. Run by the
 * rescue before anybody can write. What cannot be lowered is told, and holds nothing up (D3).
 */
import type { Runtime } from '../../io/runtime.ts';
import { groupOffsetLowering } from '../../mirror/group-offsets/lowering.ts';
import type {
  GroupOffsetSink,
  LoweredOffset,
  PartitionHere,
} from '../../mirror/group-offsets/ports.ts';
import { nameOf } from '../jobs/job-ports.ts';

/** A rescued log with its end. */
export interface RescuedLog extends PartitionHere {
  readonly end: number;
}

/** What became of the groups of one partition. */
export interface LoweredGroups {
  /** Those that were above its end. */
  readonly groups: readonly LoweredOffset[];
  /** Why there may be others; undefined: there are none. */
  readonly problem: string | undefined;
}

/** Lowers the groups of all these logs, by {@link nameOf}; repeatable. */
export async function lowerGroups(
  runtime: Pick<Runtime, 'clock' | 'logger'>,
  sink: Pick<GroupOffsetSink, 'lower'>,
  logs: readonly RescuedLog[],
): Promise<Map<string, LoweredGroups>> {
  const done = logs.map(async ({ end, ...partition }): Promise<[string, LoweredGroups]> => {
    // A repetition finds those that it cannot lower again, but not those that are low by now.
    const found = new Map<string, LoweredOffset>();
    const lower = groupOffsetLowering(runtime, {
      lower: async (...wish) => {
        const result = await sink.lower(...wish);
        for (const each of result.lowered) found.set(each.groupId, each);
        return result;
      },
    });
    const problem = await lower(partition, end);
    return [nameOf(partition), { groups: [...found.values()], problem }];
  });
  return new Map(await Promise.all(done));
}
