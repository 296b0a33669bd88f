/**
 * Keeps the rows of mirror topics true to the topics: finishes adds, forgets what was deleted.
 *
 * A job of the guest that runs the mirror's jobs. An add that died between creating the topic and
 * recording its id is finished here; the row of a topic that an administrator deleted goes, so that
 * a new topic of that name is nobody's mirror (B2; the rows of its partitions go with the store's
 * own sweep).
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import { type ErrorCode, errorName, errors } from '../../protocol/errors.ts';
import type { MirrorTopicRow } from '../state/catalog.ts';
import type { JobOwnership } from './job-ownership.ts';
import type { JobContext } from './job-ports.ts';
import { looksHalfDone } from './topic-additions.ts';

/** How long an add has been half-done before it is finished here, in ms: its request may do it. */
export const HALF_DONE_AFTER_MS = 5_000;
/**
 * How long a topic that the metadata never showed is missing before its row goes, in ms: a guest
 * that took jobs over may know the rows before it has caught up with the metadata.
 */
export const GONE_AFTER_MS = 30_000;

/** See the file header. */
export class TopicUpkeep {
  readonly #context: JobContext;
  readonly #ownership: JobOwnership;
  /** When a row's topic was first missed, monotonic, by topic id. */
  #missedSince = new Map<string, number>();
  /** When an add was first seen half-done, by topic name. */
  #halfDoneSince = new Map<string, number>();
  /** Topic ids of rows that the metadata showed: once they do not, they are gone. */
  #shown = new Set<string>();

  constructor(context: JobContext, ownership: JobOwnership) {
    this.#context = context;
    this.#ownership = ownership;
  }

  async pass(): Promise<void> {
    const { store } = this.#context;
    const missed = new Map<string, number>();
    const halfDone = new Map<string, number>();
    const shown = new Set<string>();
    for (const mirror of store.mirrors()) {
      if (!this.#ownership.isOwner(mirror)) continue;
      for (const [name, row] of store.topics(mirror)) {
        if (row.topicId === ZERO_UUID) await this.#finish(name, row, halfDone);
        else if (this.#context.image().topicsById.has(row.topicId)) shown.add(row.topicId);
        else await this.#forget(name, row, missed);
      }
    }
    this.#missedSince = missed;
    this.#halfDoneSince = halfDone;
    this.#shown = shown;
  }

  async #finish(name: string, row: MirrorTopicRow, halfDone: Map<string, number>): Promise<void> {
    const image = this.#context.image();
    const topic = image.topicsByName.get(name);
    if (row.removed || topic === undefined || !looksHalfDone(image, topic)) return;
    const nowMs = this.#context.runtime.clock.monotonicMs();
    const sinceMs = this.#halfDoneSince.get(name) ?? nowMs;
    halfDone.set(name, sinceMs);
    if (nowMs - sinceMs < HALF_DONE_AFTER_MS) return;
    const code = await this.#context.topicRows.change(name, (current) =>
      current.topicId === ZERO_UUID ? { ...current, topicId: topic.id } : undefined,
    );
    this.#told('mirror topic taken up after a half-done add', name, code);
  }

  async #forget(name: string, row: MirrorTopicRow, missed: Map<string, number>): Promise<void> {
    const { store, runtime } = this.#context;
    const nowMs = runtime.clock.monotonicMs();
    const sinceMs = this.#missedSince.get(row.topicId) ?? nowMs;
    missed.set(row.topicId, sinceMs);
    const isGone = this.#shown.has(row.topicId) || nowMs - sinceMs >= GONE_AFTER_MS;
    if (!isGone || store.topic(name)?.topicId !== row.topicId) return;
    this.#told('row of a deleted mirror topic removed', name, await store.deleteTopic(name));
  }

  #told(what: string, topic: string, code: ErrorCode): void {
    const { logger } = this.#context.runtime;
    if (code === errors.NONE.code) logger.info(what, { topic });
    else logger.warn('row of a mirror topic cannot be written', { topic, why: errorName(code) });
  }
}
