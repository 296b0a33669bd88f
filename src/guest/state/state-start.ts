/**
 * When the mirror state of a guest's cluster begins to be read, and is there to be written.
 *
 * The topic may exist before the guest joins, be made by the guest with the first mirror (C1), or
 * by another guest. Invariant: reading starts once, as soon as the topic is known of, and whoever
 * makes the topic here waits until it is read.
 */
import type { Runtime } from '../../io/runtime.ts';
import type { MetadataImage } from '../../metadata/image.ts';
import type { MetadataDelta } from '../../metadata/image-delta.ts';
import type { MetadataPublisher } from '../../metadata/metadata-loader.ts';
import { MIRROR_STATE_TOPIC } from '../../mirror/state-row.ts';
import { errors } from '../../protocol/errors.ts';
import { ClusterError } from '../cluster-client.ts';
import type { JobController } from '../jobs/job-ports.ts';
import type { GuestStateStore } from './state-store.ts';
import { createStateTopic, type StateTopicWish } from './state-topic-creation.ts';

/** Pause before reading is begun again after it failed, in ms. */
export const START_AGAIN_MS = 1_000;

/** What a {@link MirrorStateStart} is made of. */
export interface MirrorStateStartOptions {
  readonly store: Pick<GuestStateStore, 'start'>;
  readonly controller: JobController;
  readonly wish: StateTopicWish;
}

/** See the file header. */
export class MirrorStateStart implements MetadataPublisher {
  readonly name = 'mirror state start';
  readonly #runtime: Pick<Runtime, 'clock' | 'logger'>;
  readonly #options: MirrorStateStartOptions;
  #image: MetadataImage | undefined;
  #started: Promise<void> | undefined;
  #closed = false;

  constructor(runtime: Pick<Runtime, 'clock' | 'logger'>, options: MirrorStateStartOptions) {
    this.#runtime = runtime;
    this.#options = options;
  }

  close(): void {
    this.#closed = true;
  }

  /** Reads the rows if the topic is in the metadata; until they are read, however long. */
  async begin(image: MetadataImage): Promise<void> {
    this.#image = image;
    if (!image.topicsByName.has(MIRROR_STATE_TOPIC)) return;
    this.#started ??= this.#start();
    await this.#started;
  }

  publish(delta: MetadataDelta): void {
    void this.begin(delta.image);
  }

  async #start(): Promise<void> {
    const { clock, logger } = this.#runtime;
    while (!this.#closed) {
      try {
        await this.#options.store.start();
        return;
      } catch (error) {
        if (!(error instanceof ClusterError)) throw error;
        logger.warn('the mirror state cannot be read yet', { error: error.message });
      }
      await new Promise<void>((resolve) => {
        clock.setTimer(START_AGAIN_MS, resolve);
      });
    }
  }

  /** Makes the topic if it is missing, and reads it; 0 or an error code. */
  async ensure(): Promise<number> {
    const image = this.#image;
    if (image === undefined) return errors.COORDINATOR_LOAD_IN_PROGRESS.code;
    if (this.#started === undefined) {
      const { controller, wish } = this.#options;
      const error = await createStateTopic(controller, image, wish);
      if (error !== errors.NONE.code) return error;
      this.#started ??= this.#start();
    }
    await this.#started;
    return this.#closed ? errors.COORDINATOR_NOT_AVAILABLE.code : errors.NONE.code;
  }
}
