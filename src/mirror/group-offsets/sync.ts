/**
 * The group offset job (rule Y6): every `mirror.group.offset.sync.interval.ms`, for each mirror
 * whose jobs this broker runs, what consumer groups committed at the source is committed here.
 *
 * A metadata publisher, so that it knows which mirrors there are. Source brokers are worked on
 * beside each other and groups one by one, and what goes wrong with one keeps no other waiting; a
 * broker that is still busy with an earlier pass is left out of the next. Invariants:
 * - Nothing is written where nothing differs, and nothing once STOPPING began: partition, range and
 *   ownership are asked again right before each commit.
 * - Every error counts and the newest one can be read (M1); what passes by itself only delays.
 */
import type { Runtime, Timer } from '../../io/runtime.ts';
import { ConfigResourceType } from '../../metadata/image.ts';
import type { MetadataDelta } from '../../metadata/image-delta.ts';
import type { MetadataPublisher } from '../../metadata/metadata-loader.ts';
import { partitionKey } from '../../storage/topic-partition.ts';
import { failureOf } from '../causes.ts';
import { mirrorNames } from '../mirror-coordinator.ts';
import type { MirrorSettings } from '../settings.ts';
import {
  clamp,
  type GroupOffsetPlan,
  groupFilter,
  PartitionIndex,
  type PlannedGroup,
  type PlannedOffset,
  planGroupOffsets,
  problemOf,
  type SyncProblem,
  wantedOffsets,
} from './plan.ts';
import type {
  GroupOffsetSink,
  GroupOffsetSource,
  HeldGroup,
  MirroredPartitions,
  OffsetToCommit,
  SourceBroker,
} from './ports.ts';
import { type GroupsSourceCluster, SourceGroups } from './source.ts';

/** Groups asked about in one OffsetFetch; the rest follows. */
export const MAX_GROUPS_PER_FETCH = 100;
/** Offsets in one commit, whose metadata may be some KiB each; the rest follows. */
export const MAX_OFFSETS_PER_COMMIT = 100;
/** Pause before it is looked again whether there is something to do, without settings, in ms. */
const IDLE_INTERVAL_MS = 1_000;

/** What a job tells of itself (M1). Wall times in ms, −1: never. */
export interface SyncJobStatus {
  readonly lastRunMs: number;
  /** The last pass that compared and copied all there was. */
  readonly lastSuccessMs: number;
  /** Since the start of this broker. */
  readonly errors: number;
  /** Empty: none yet. */
  readonly lastError: string;
}

const NEVER_RUN: SyncJobStatus = { lastRunMs: -1, lastSuccessMs: -1, errors: 0, lastError: '' };

/** A mirror as the job needs it. */
export interface SyncedMirror {
  readonly source: GroupsSourceCluster;
  readonly settings: Pick<
    MirrorSettings,
    'groupsInclude' | 'groupsExclude' | 'groupOffsetSyncIntervalMs'
  >;
}

/** What a {@link GroupOffsetSync} is made of. */
export interface GroupOffsetSyncOptions {
  /** Whether this broker runs the mirror-wide jobs of a mirror (C3, G23). */
  readonly ownsJobs: (mirror: string) => boolean;
  /** Undefined: no such mirror. */
  readonly mirror: (name: string) => SyncedMirror | undefined;
  readonly partitions: MirroredPartitions;
  readonly sink: GroupOffsetSink;
}

interface Job {
  readonly mirror: string;
  timer: Timer | undefined;
  /** A pass is finding out what there is. */
  looking: boolean;
  /** Source brokers that a pass works on. */
  readonly busy: Set<number>;
  source: { readonly cluster: GroupsSourceCluster; readonly groups: GroupOffsetSource } | undefined;
  status: SyncJobStatus;
  /** The trouble that was logged last; empty: none since it last went well. */
  reported: string;
  ended: boolean;
}

/** What a pass works with. */
interface Look {
  readonly source: GroupOffsetSource;
  readonly brokers: readonly SourceBroker[];
  readonly isWanted: (groupId: string) => boolean;
  readonly index: () => PartitionIndex;
}

/** What went wrong in a pass. */
class Tally {
  errors = 0;
  delays = 0;
  firstError: SyncProblem | undefined;

  add(problems: readonly SyncProblem[]): void {
    for (const problem of problems) {
      if (problem.isTransient) this.delays++;
      else {
        this.errors++;
        this.firstError ??= problem;
      }
    }
  }
}

const NO_GROUPS: ReadonlyMap<string, HeldGroup> = new Map();

/** See the file header. */
export class GroupOffsetSync implements MetadataPublisher {
  readonly name = 'group offset sync';
  readonly #runtime: Pick<Runtime, 'clock' | 'logger'>;
  readonly #options: GroupOffsetSyncOptions;
  readonly #jobs = new Map<string, Job>();
  #closed = false;

  constructor(runtime: Pick<Runtime, 'clock' | 'logger'>, options: GroupOffsetSyncOptions) {
    this.#runtime = runtime;
    this.#options = options;
  }

  publish(delta: MetadataDelta): void {
    if (this.#closed) return;
    if (!delta.changedConfigs.some(({ type }) => type === ConfigResourceType.MIRROR)) return;
    const names = new Set(mirrorNames(delta.image));
    for (const [name, job] of this.#jobs) if (!names.has(name)) this.#end(job);
    for (const name of names) if (!this.#jobs.has(name)) this.#begin(name);
  }

  close(): void {
    this.#closed = true;
    for (const job of this.#jobs.values()) this.#end(job);
  }

  /** How the job of a mirror is doing (M1). */
  status(mirror: string): SyncJobStatus {
    return this.#jobs.get(mirror)?.status ?? NEVER_RUN;
  }

  #begin(mirror: string): void {
    const job: Job = {
      mirror,
      timer: undefined,
      looking: false,
      busy: new Set(),
      source: undefined,
      status: NEVER_RUN,
      reported: '',
      ended: false,
    };
    this.#jobs.set(mirror, job);
    this.#schedule(job);
  }

  #end(job: Job): void {
    job.ended = true;
    job.timer?.cancel();
    this.#jobs.delete(job.mirror);
  }

  #schedule(job: Job): void {
    const settings = this.#isOurs(job) ? this.#options.mirror(job.mirror)?.settings : undefined;
    const delayMs = settings?.groupOffsetSyncIntervalMs ?? IDLE_INTERVAL_MS;
    job.timer = this.#runtime.clock.setTimer(delayMs, () => {
      this.#schedule(job);
      void this.run(job.mirror);
    });
  }

  #isOurs(job: Job): boolean {
    return !job.ended && this.#options.ownsJobs(job.mirror);
  }

  /** What a pass would commit now. Never rejects for what goes wrong: that is in the plan. */
  async plan(mirror: string): Promise<GroupOffsetPlan> {
    const groups: PlannedGroup[] = [];
    const withMembers: string[] = [];
    const problems: SyncProblem[] = [];
    const job = this.#jobs.get(mirror);
    if (job === undefined) return { groups, withMembers, problems };
    const look = await this.#look(job, (problem) => problems.push(problem));
    for (const broker of look?.brokers ?? []) {
      await this.#each(look as Look, broker, async (plan) => {
        groups.push(...plan.groups);
        withMembers.push(...plan.withMembers);
        problems.push(...plan.problems);
      });
    }
    return { groups, withMembers, problems };
  }

  /** One pass now, if this broker runs the mirror's jobs; resolves when it is over. */
  async run(mirror: string): Promise<void> {
    const job = this.#jobs.get(mirror);
    if (job === undefined || job.looking || !this.#isOurs(job)) return;
    const startedMs = this.#runtime.clock.wallMs();
    const tally = new Tally();
    job.looking = true;
    const look = await this.#look(job, (problem) => tally.add([problem]));
    job.looking = false;
    const free = look?.brokers.filter(({ brokerId }) => !job.busy.has(brokerId)) ?? [];
    await Promise.all(free.map((broker) => this.#copy(job, look as Look, broker, tally)));
    this.#finish(job, startedMs, tally);
  }

  /** What there is to do; undefined: nothing, or what is in the way was noted. */
  async #look(job: Job, note: (problem: SyncProblem) => void): Promise<Look | undefined> {
    const mirror = this.#options.mirror(job.mirror);
    if (mirror === undefined) return undefined;
    try {
      const partitions = await this.#options.partitions.mirroring(job.mirror);
      if (partitions.length === 0) return undefined;
      if (job.source?.cluster !== mirror.source) {
        const groups = new SourceGroups(this.#runtime.clock, mirror.source);
        job.source = { cluster: mirror.source, groups };
      }
      const source = job.source.groups;
      let index: PartitionIndex | undefined;
      return {
        source,
        brokers: await source.brokers(),
        isWanted: groupFilter(mirror.settings),
        index: () => {
          index ??= new PartitionIndex(partitions);
          return index;
        },
      };
    } catch (error) {
      const { message } = failureOf(error, this.#runtime.logger);
      note({ item: 'the source', message, isTransient: false });
      return undefined;
    }
  }

  /** Hands the plans for a source broker's groups over, some groups at a time. */
  async #each(
    look: Look,
    broker: SourceBroker,
    onPlan: (plan: GroupOffsetPlan) => Promise<void>,
  ): Promise<void> {
    const nothing = { groups: [], withMembers: [] };
    const item = `broker ${broker.brokerId} of the source`;
    try {
      const listed = await look.source.groups(broker);
      if ('error' in listed) {
        const problem = problemOf(item, listed.error, 'source');
        await onPlan({ ...nothing, problems: [problem] });
        return;
      }
      const groupIds = listed.filter(look.isWanted);
      for (let from = 0; from < groupIds.length; from += MAX_GROUPS_PER_FETCH) {
        const some = groupIds.slice(from, from + MAX_GROUPS_PER_FETCH);
        await onPlan(await this.#planOf(look, broker, some));
      }
    } catch (error) {
      const { message } = failureOf(error, this.#runtime.logger);
      look.source.outdated();
      await onPlan({ ...nothing, problems: [{ item, message, isTransient: false }] });
    }
  }

  async #planOf(
    look: Look,
    broker: SourceBroker,
    groupIds: readonly string[],
  ): Promise<GroupOffsetPlan> {
    const { sink, partitions } = this.#options;
    const answered = await look.source.offsets(broker, groupIds);
    const { wanted, problems } = wantedOffsets(answered, look.index());
    const held =
      wanted.length === 0 ? NO_GROUPS : await sink.read(wanted.map(({ groupId }) => groupId));
    const plan = planGroupOffsets(wanted, held, (partition) => partitions.range(partition));
    return { ...plan, problems: [...problems, ...plan.problems] };
  }

  async #copy(job: Job, look: Look, broker: SourceBroker, tally: Tally): Promise<void> {
    job.busy.add(broker.brokerId);
    await this.#each(look, broker, async (plan) => {
      tally.add(plan.problems);
      for (const group of plan.groups) tally.add(await this.#commit(job, group));
    });
    job.busy.delete(broker.brokerId);
  }

  async #commit(job: Job, { groupId, offsets }: PlannedGroup): Promise<SyncProblem[]> {
    const problems: SyncProblem[] = [];
    for (let from = 0; from < offsets.length; from += MAX_OFFSETS_PER_COMMIT) {
      const some = offsets.slice(from, from + MAX_OFFSETS_PER_COMMIT);
      const result = await this.#options.sink.commit(groupId, () => this.#stillWanted(job, some));
      // Its members commit for themselves from now on.
      if (result.kind === 'members') return problems;
      if (result.kind === 'failed') {
        problems.push(problemOf(`group ${groupId}`, result.errorCode, 'here'));
        return problems;
      }
      for (const { topic, partition, errorCode } of result.failed) {
        const item = `group ${groupId}, ${partitionKey(topic, partition)}`;
        problems.push(problemOf(item, errorCode, 'here'));
      }
    }
    return problems;
  }

  /** What of a plan is still to be committed, as of now. */
  #stillWanted(job: Job, offsets: readonly PlannedOffset[]): OffsetToCommit[] {
    if (!this.#isOurs(job)) return [];
    return offsets.flatMap(({ partition: mirrored, sourceOffset, metadata }) => {
      const range = this.#options.partitions.range(mirrored);
      if (range === undefined) return [];
      const { topic, topicId, partition } = mirrored;
      return [{ topic, topicId, partition, offset: clamp(sourceOffset, range), metadata }];
    });
  }

  #finish(job: Job, startedMs: number, tally: Tally): void {
    const { errors, delays, firstError } = tally;
    const before = job.status;
    const text = firstError === undefined ? '' : `${firstError.item}: ${firstError.message}`;
    job.status = {
      lastRunMs: startedMs,
      lastSuccessMs: errors + delays === 0 ? this.#runtime.clock.wallMs() : before.lastSuccessMs,
      errors: before.errors + errors,
      lastError: text === '' ? before.lastError : text,
    };
    if (text === job.reported) return;
    const { logger } = this.#runtime;
    const fields = { mirror: job.mirror };
    if (text !== '') logger.warn('group offsets not copied', { ...fields, errors, first: text });
    else if (delays === 0) logger.info('group offsets are copied again', fields);
    else return;
    job.reported = text;
  }
}
