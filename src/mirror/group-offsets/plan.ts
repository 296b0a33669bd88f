/**
 * What the group offset job would commit (rule Y6): pure, from what both sides said.
 *
 * An offset takes part when its group passes the filters, its partition is MIRRORING here, the
 * group has no members here, and what is committed here differs. It is clamped to what the log here
 * holds; 0 is an offset like any other. `sync.ts` applies a plan and asks again before each commit.
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import { partitionKey } from '../../storage/topic-partition.ts';
import type { MirrorSettings } from '../settings.ts';
import type {
  HeldGroup,
  MirroredPartition,
  OffsetRange,
  SourceGroup,
  SourceOffset,
} from './ports.ts';

/** One offset of a plan. */
export interface PlannedOffset {
  readonly partition: MirroredPartition;
  readonly sourceOffset: number;
  /** The source's, clamped. */
  readonly offset: number;
  readonly metadata: string;
  /** Committed here now; undefined: nothing. */
  readonly previous: number | undefined;
}

/** The offsets of one group that differ. */
export interface PlannedGroup {
  readonly groupId: string;
  readonly offsets: readonly PlannedOffset[];
}

/** Something that kept an item from being compared or copied. */
export interface SyncProblem {
  /** What it is about: a broker of the source, a group, a partition of a group. */
  readonly item: string;
  readonly message: string;
  /** It passes by itself (a coordinator moves or loads): not an error. */
  readonly isTransient: boolean;
}

/** What is to be committed, and what is left out. */
export interface GroupOffsetPlan {
  readonly groups: readonly PlannedGroup[];
  /** Groups whose offsets differ, but that have members here. */
  readonly withMembers: readonly string[];
  readonly problems: readonly SyncProblem[];
}

/** What a group has at the source that takes part. */
export interface WantedGroup {
  readonly groupId: string;
  readonly offsets: readonly WantedOffset[];
}

/** A source's offset and the partition here that it belongs to. */
export interface WantedOffset {
  readonly partition: MirroredPartition;
  readonly offset: number;
  readonly metadata: string;
}

const TRANSIENT: ReadonlySet<number> = new Set<number>([
  errors.COORDINATOR_LOAD_IN_PROGRESS.code,
  errors.COORDINATOR_NOT_AVAILABLE.code,
  errors.NOT_COORDINATOR.code,
]);

/** Whether an error passes by itself. */
export function isTransient(code: number): boolean {
  return TRANSIENT.has(code);
}

/** The problem that an error code means. */
export function problemOf(item: string, code: number, where: 'source' | 'here'): SyncProblem {
  const side = where === 'source' ? 'the source answers' : 'the coordinator here answers';
  return { item, message: `${side} ${errorName(code)}`, isTransient: isTransient(code) };
}

/** Whether a group's offsets are copied, by `mirror.groups.include` and `.exclude`. */
export function groupFilter(
  settings: Pick<MirrorSettings, 'groupsInclude' | 'groupsExclude'>,
): (groupId: string) => boolean {
  const whole = (patterns: readonly string[]): RegExp[] =>
    patterns.map((pattern) => new RegExp(`^(?:${pattern})$`, 's'));
  const [include, exclude] = [whole(settings.groupsInclude), whole(settings.groupsExclude)];
  const matches = (patterns: readonly RegExp[], text: string): boolean =>
    patterns.some((pattern) => pattern.test(text));
  return (groupId) => matches(include, groupId) && !matches(exclude, groupId);
}

/** Finds the partition here that a source's offset is about. */
export class PartitionIndex {
  readonly #byId = new Map<string, MirroredPartition>();
  readonly #byName = new Map<string, MirroredPartition>();

  constructor(partitions: readonly MirroredPartition[]) {
    for (const each of partitions) {
      this.#byName.set(partitionKey(each.topic, each.partition), each);
      if (each.sourceTopicId === ZERO_UUID) continue;
      this.#byId.set(partitionKey(each.sourceTopicId, each.partition), each);
    }
  }

  /** By id where the source names ids, so that another topic of that name is not meant (F12). */
  find({ topic, topicId, partition }: SourceOffset): MirroredPartition | undefined {
    return topicId === ZERO_UUID
      ? this.#byName.get(partitionKey(topic, partition))
      : this.#byId.get(partitionKey(topicId, partition));
  }
}

/** The offsets that take part, by group; groups without one are left out. */
export function wantedOffsets(
  groups: readonly SourceGroup[],
  index: PartitionIndex,
): { readonly wanted: readonly WantedGroup[]; readonly problems: readonly SyncProblem[] } {
  const wanted: WantedGroup[] = [];
  const problems: SyncProblem[] = [];
  for (const { groupId, errorCode, offsets } of groups) {
    if (errorCode !== errors.NONE.code) {
      problems.push(problemOf(`group ${groupId}`, errorCode, 'source'));
      continue;
    }
    const found: WantedOffset[] = [];
    for (const each of offsets) {
      const partition = index.find(each);
      if (partition === undefined) continue;
      if (each.errorCode !== errors.NONE.code) {
        const item = `group ${groupId}, ${partitionKey(partition.topic, partition.partition)}`;
        problems.push(problemOf(item, each.errorCode, 'source'));
      } else if (each.offset >= 0) {
        found.push({ partition, offset: each.offset, metadata: each.metadata });
      }
    }
    if (found.length > 0) wanted.push({ groupId, offsets: found });
  }
  return { wanted, problems };
}

/** The nearest offset that the log here can serve. */
export function clamp(offset: number, { logStartOffset, logEndOffset }: OffsetRange): number {
  return Math.max(logStartOffset, Math.min(offset, logEndOffset));
}

/** Compares what takes part with what is committed here. */
export function planGroupOffsets(
  wanted: readonly WantedGroup[],
  held: ReadonlyMap<string, HeldGroup>,
  range: (partition: MirroredPartition) => OffsetRange | undefined,
): GroupOffsetPlan {
  const groups: PlannedGroup[] = [];
  const withMembers: string[] = [];
  const problems: SyncProblem[] = [];
  for (const { groupId, offsets } of wanted) {
    const here = held.get(groupId);
    if (here === undefined || here.errorCode !== errors.NONE.code) {
      const code = here?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
      problems.push(problemOf(`group ${groupId}`, code, 'here'));
      continue;
    }
    const differing = offsets.flatMap((each) => difference(each, here, range(each.partition)));
    if (differing.length === 0) continue;
    if (here.hasMembers) withMembers.push(groupId);
    else groups.push({ groupId, offsets: differing });
  }
  return { groups, withMembers, problems };
}

function difference(
  { partition, offset: sourceOffset, metadata }: WantedOffset,
  here: HeldGroup,
  range: OffsetRange | undefined,
): PlannedOffset[] {
  if (range === undefined) return [];
  const offset = clamp(sourceOffset, range);
  const held = here.offsets.get(partitionKey(partition.topic, partition.partition));
  if (held?.offset === offset && held.metadata === metadata) return [];
  return [{ partition, sourceOffset, offset, metadata, previous: held?.offset }];
}

/** A plan for people, a line an offset. */
export function planText(plan: GroupOffsetPlan): string[] {
  const lines = plan.groups.flatMap(({ groupId, offsets }) =>
    offsets.map(({ partition: { topic, partition }, offset, sourceOffset, previous }) => {
      const clamped = offset === sourceOffset ? '' : ` (source ${sourceOffset}, clamped)`;
      const before = previous === undefined ? 'none' : String(previous);
      return `${groupId} ${partitionKey(topic, partition)}: ${before} -> ${offset}${clamped}`;
    }),
  );
  const skipped = plan.withMembers.map((groupId) => `${groupId}: left alone, it has members here`);
  return [...lines, ...skipped, ...plan.problems.map(({ item, message }) => `${item}: ${message}`)];
}
