/**
 * The jobs of a guest, put together: who runs them, the lock of new topics, handing over, strays.
 *
 * Made by the composition root, which tells it of new metadata and rows. Two loops, so that foreign
 * partitions are swept away while a handover waits for a controller. Invariants:
 * - Within a loop one pass at a time, in the order: ownership, upkeep of rows, lock, takeover,
 *   handover.
 * - Nothing is remembered between passes that metadata and rows do not say (G28).
 */
import type { Uuid } from '../../base/uuid.ts';
import type { Runtime } from '../../io/runtime.ts';
import type { MetadataDelta } from '../../metadata/image-delta.ts';
import type { MetadataPublisher } from '../../metadata/metadata-loader.ts';
import { GUEST_MAINTENANCE_CONFIG, guestFlag } from '../guest-brokers.ts';
import { Handover, type HandoverWait } from './handover.ts';
import { GuestIsrRule } from './isr-rule.ts';
import { JobOwnership } from './job-ownership.ts';
import type { JobContext } from './job-ports.ts';
import { LevelJob } from './level-job.ts';
import { type StrayProblem, StraySweeper } from './strays.ts';
import { Takeover, type TakeoverWait } from './takeover.ts';
import { TopicLock } from './topic-lock.ts';
import { TopicUpkeep } from './topic-upkeep.ts';

/** Time between passes when nobody notices anything, in ms. */
export const PASS_INTERVAL_MS = 1_000;
/** A follower that has not fetched for so long is not waited for, in ms (G24). */
export const RECENT_FETCH_MS = 2_000;

/** What {@link GuestJobs} are made of. */
export interface GuestJobsOptions {
  readonly context: JobContext;
  /** When a follower of a partition led here fetched last, monotonic ms; undefined: not known. */
  readonly lastFetchMs: (topicId: Uuid, partition: number, brokerId: number) => number | undefined;
  /** Who may be in an ISR has changed. */
  readonly reviewIsr: () => void;
  /** Runs what needs this guest's log directory to take replicas (G7). */
  readonly whileUncordoned: <T>(action: () => Promise<T>) => Promise<T>;
  /** Looks whether the cordon is as it shall be. */
  readonly reviewCordon: () => Promise<void>;
}

/** See the file header. */
export class GuestJobs implements MetadataPublisher {
  readonly name = 'guest jobs';
  readonly ownership: JobOwnership;
  /** Who may be in the ISR of what this guest leads. */
  readonly isrRule: GuestIsrRule;
  readonly #takeover: Takeover;
  readonly #handover: Handover;
  readonly #strays: StraySweeper;
  readonly #mirrorJob: LevelJob;
  readonly #strayJob: LevelJob;

  constructor(runtime: Pick<Runtime, 'clock' | 'logger'>, options: GuestJobsOptions) {
    const { context, lastFetchMs, reviewIsr, whileUncordoned } = options;
    const { image, brokerId } = context;
    const inMaintenance = (): boolean => guestFlag(image(), brokerId, GUEST_MAINTENANCE_CONFIG);
    this.ownership = new JobOwnership(context);
    this.isrRule = new GuestIsrRule({ image, inMaintenance });
    const { ownership, isrRule } = this;
    const upkeep = new TopicUpkeep(context, ownership);
    const lock = new TopicLock({ context, ownership, inMaintenance });
    this.#takeover = new Takeover({ context, ownership, whileUncordoned });
    this.#handover = new Handover({
      context,
      ownership,
      isrRule,
      fetchedRecently: (topicId, partition, id) => {
        const atMs = lastFetchMs(topicId, partition, id);
        return atMs !== undefined && runtime.clock.monotonicMs() - atMs <= RECENT_FETCH_MS;
      },
      reviewIsr,
    });
    this.#strays = new StraySweeper({ context, ownership });
    this.#mirrorJob = new LevelJob(runtime, {
      intervalMs: PASS_INTERVAL_MS,
      pass: async () => {
        await ownership.claimOrphans();
        await upkeep.pass();
        await lock.pass();
        await this.#takeover.pass();
        await this.#handover.pass();
      },
    });
    this.#strayJob = new LevelJob(runtime, {
      intervalMs: PASS_INTERVAL_MS,
      pass: async () => {
        await options.reviewCordon();
        await this.#strays.pass();
      },
    });
  }

  /** Begins when this guest is a live member that knows the rows. */
  start(): void {
    this.#mirrorJob.start();
    this.#strayJob.start();
  }

  close(): void {
    this.#mirrorJob.close();
    this.#strayJob.close();
  }

  publish(_delta: MetadataDelta): void {
    this.#mirrorJob.notice();
    this.#strayJob.notice();
  }

  /** Rows of the mirror state changed. */
  rowsChanged(): void {
    this.#mirrorJob.notice();
  }

  /** What is not done yet and why. */
  explain(): readonly (HandoverWait | TakeoverWait | StrayProblem)[] {
    return [...this.#takeover.explain(), ...this.#handover.explain(), ...this.#strays.explain()];
  }

  /** What a partition of a mirror waits for; undefined: nothing that a job has to do. */
  waitOf(topic: string, partition: number): string | undefined {
    return this.explain().find((wait) => wait.topic === topic && wait.partition === partition)
      ?.reason;
  }
}
