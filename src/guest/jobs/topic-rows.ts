/**
 * Changes to the rows of mirror topics, one at a time per topic.
 *
 * Several jobs keep different facts in one row (membership, id, final settings, what is owed); each
 * change is made on the row as the change before it left it, so that none undoes another.
 */
import { type ErrorCode, errors } from '../../protocol/errors.ts';
import type { MirrorTopicRow } from '../state/catalog.ts';

/** Where the rows are. */
export interface TopicRowStore {
  topic(topicName: string): MirrorTopicRow | undefined;
  writeTopic(topicName: string, row: MirrorTopicRow): Promise<ErrorCode>;
}

/** See the file header. */
export class TopicRows {
  readonly #store: TopicRowStore;
  /** The last change of each topic that is under way. */
  readonly #tails = new Map<string, Promise<ErrorCode>>();

  constructor(store: TopicRowStore) {
    this.#store = store;
  }

  /**
   * Writes what `change` makes of the present row; undefined: it stays. RESOURCE_NOT_FOUND when
   * there is no row.
   */
  async change(
    topic: string,
    change: (row: MirrorTopicRow) => MirrorTopicRow | undefined,
  ): Promise<ErrorCode> {
    const before = this.#tails.get(topic);
    const made =
      before === undefined ? this.#make(topic, change) : this.#after(before, topic, change);
    this.#tails.set(topic, made);
    try {
      return await made;
    } finally {
      if (this.#tails.get(topic) === made) this.#tails.delete(topic);
    }
  }

  async #after(
    before: Promise<ErrorCode>,
    topic: string,
    change: (row: MirrorTopicRow) => MirrorTopicRow | undefined,
  ): Promise<ErrorCode> {
    await Promise.allSettled([before]);
    return await this.#make(topic, change);
  }

  async #make(
    topic: string,
    change: (row: MirrorTopicRow) => MirrorTopicRow | undefined,
  ): Promise<ErrorCode> {
    const row = this.#store.topic(topic);
    if (row === undefined) return errors.RESOURCE_NOT_FOUND.code;
    const next = change(row);
    if (next === undefined || next === row) return errors.NONE.code;
    return await this.#store.writeTopic(topic, next);
  }
}
