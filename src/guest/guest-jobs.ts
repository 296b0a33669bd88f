/**
 * All jobs of a guest, wired to each other: what the composition root makes and tells of changes.
 *
 * Two level-triggered passes: `work` for mirrors (who runs them, upkeep of rows, locks, handover)
 * and `sweep` for what is none of ours; one that hangs does not hold the other up. `notice` is
 * called after every change of metadata or rows.
 */
import type { Uuid } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import type { ConfigValidators } from '../metadata/config-validator.ts';
import type { MetadataImage } from '../metadata/image.ts';
import { Cordon } from './cordon.ts';
import { Handover, type HandoverWait } from './handover.ts';
import { GuestIsrRule } from './isr-rule.ts';
import { JobOwnership } from './job-ownership.ts';
import type { JobContext, JobController, JobStore } from './job-ports.ts';
import { LevelJob } from './level-job.ts';
import { GuestMirrorAdmin } from './mirror-admin.ts';
import { type StrayProblem, StraySweeper } from './strays.ts';
import type { TopicAdditionsOptions } from './topic-additions.ts';
import { TopicLock } from './topic-lock.ts';
import { TopicRows } from './topic-rows.ts';
import { TopicUpkeep } from './topic-upkeep.ts';

/** Time between two looks when nothing is noticed, in ms: patience and pauses end by these. */
export const JOB_INTERVAL_MS = 500;

/** What {@link GuestJobs} is made of. */
export interface GuestJobsOptions
  extends Pick<TopicAdditionsOptions, 'sourceConfigs' | 'replicationFactor'> {
  /** This guest's id. */
  readonly brokerId: number;
  readonly controller: JobController;
  readonly store: JobStore;
  readonly image: () => MetadataImage;
  /** For the settings of mirrors. */
  readonly validators: ConfigValidators;
  /** Whether a follower of a partition that this guest leads has fetched in the last second or two. */
  readonly fetchedRecently: (topicId: Uuid, partition: number, brokerId: number) => boolean;
  /** `ReplicaManager.reviewIsr`. */
  readonly reviewIsr: () => void;
  /** Whether `twinlog guest maintenance on` is in force. */
  readonly inMaintenance: () => boolean;
  readonly logDirs: readonly Uuid[];
  /** Highest BrokerHeartbeat version of the active controller; undefined: not known yet. */
  readonly heartbeatVersion: () => number | undefined;
  /** Sends a heartbeat soon. */
  readonly heartbeatNow: () => void;
}

/** See the file header. */
export class GuestJobs {
  /** Decides the mirror APIs; what `ControllerPort.forward` calls. */
  readonly admin: GuestMirrorAdmin;
  /** For the replica manager. */
  readonly isrRule: GuestIsrRule;
  /** For the heartbeats. */
  readonly cordon: Cordon;
  readonly #ownership: JobOwnership;
  readonly #upkeep: TopicUpkeep;
  readonly #lock: TopicLock;
  readonly #handover: Handover;
  readonly #sweeper: StraySweeper;
  readonly #jobs: readonly LevelJob[];

  constructor(runtime: Runtime, options: GuestJobsOptions) {
    const { brokerId, controller, store, image, inMaintenance } = options;
    const topicRows = new TopicRows(store);
    const context: JobContext = { runtime, brokerId, controller, store, topicRows, image };
    const ownership = new JobOwnership(context);
    this.cordon = new Cordon(runtime, options);
    this.isrRule = new GuestIsrRule({ image, inMaintenance });
    this.admin = new GuestMirrorAdmin({
      ...options,
      context,
      ownership,
      whileUncordoned: (action) => this.cordon.whileLifted(action),
    });
    this.#ownership = ownership;
    this.#upkeep = new TopicUpkeep(context, ownership);
    this.#lock = new TopicLock({ context, ownership, inMaintenance });
    this.#handover = new Handover({ ...options, context, ownership, isrRule: this.isrRule });
    this.#sweeper = new StraySweeper({ context, ownership });
    this.#jobs = [
      new LevelJob(runtime, { intervalMs: JOB_INTERVAL_MS, pass: () => this.#work() }),
      new LevelJob(runtime, { intervalMs: JOB_INTERVAL_MS, pass: () => this.#sweeper.pass() }),
    ];
  }

  /** Begins; the store has read its rows and the metadata is there. */
  start(): void {
    for (const job of this.#jobs) job.start();
  }

  /** Ends after the passes under way. */
  close(): void {
    for (const job of this.#jobs) job.close();
  }

  /** Metadata or rows have changed. */
  notice(): void {
    for (const job of this.#jobs) job.notice();
  }

  async #work(): Promise<void> {
    await this.#handover.pass();
    await this.#ownership.claimOrphans();
    await this.#upkeep.pass();
    await this.#lock.pass();
  }

  /** What partitions that left their mirror wait for, and replicas that are still owed (G6, G28). */
  waits(): readonly HandoverWait[] {
    return this.#handover.explain();
  }

  /** Foreign partitions on guests (G8). */
  strays(): readonly StrayProblem[] {
    return this.#sweeper.explain();
  }

  /** What keeps topics from being locked or unlocked, by topic. */
  lockProblems(): ReadonlyMap<string, string> {
    return this.#lock.problems;
  }
}
