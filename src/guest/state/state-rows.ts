/**
 * The rows of `__mirror_state` in memory, and where in the topic each stands.
 *
 * Fed by `state-store.ts` from two sides: the tail of the topic, and what this guest committed
 * itself, which the tail meets again later. Invariant: a row never goes back to an earlier place of
 * its partition, whatever order the two sides come in.
 */
import type { PlacedRecord } from '../../metadata/transaction-buffer.ts';
import { MirrorShard } from '../../mirror/coordinator-shard.ts';
import { decodeRowKey, rowKeyText } from '../../mirror/state-row.ts';
import { type CatalogKey, catalogKeyText, decodeCatalogKey, MirrorCatalog } from './catalog.ts';
import type { ReadRow } from './state-topic.ts';

interface Stamp {
  readonly partition: number;
  readonly offset: number;
  readonly writer: number | undefined;
}

const NO_RECORDS: readonly PlacedRecord[] = [];

/** See the file header. */
export class StateRows {
  /** Partition rows. */
  readonly shard = new MirrorShard();
  readonly catalog = new MirrorCatalog();
  readonly #stamps = new Map<string, Stamp>();

  /** The guest that wrote a row last; undefined: there is none, or it is not known. */
  writerOf(text: string): number | undefined {
    return this.#stamps.get(text)?.writer;
  }

  /** Applies a row; what it changes of the metadata image. Undefined: nothing changed. */
  apply(row: ReadRow): readonly PlacedRecord[] | undefined {
    const rowKey = decodeRowKey(row.key);
    if (rowKey !== undefined) return this.#apply(rowKeyText(rowKey), row, undefined);
    const catalogKey = decodeCatalogKey(row.key);
    // A record type of a later version: not ours to understand.
    if (catalogKey === undefined) return undefined;
    return this.#apply(catalogKeyText(catalogKey), row, catalogKey);
  }

  #apply(
    text: string,
    row: ReadRow,
    catalogKey: CatalogKey | undefined,
  ): readonly PlacedRecord[] | undefined {
    const { key, value, writer } = row;
    const { partition, offset } = row.at;
    const stamp = this.#stamps.get(text);
    const isKnown = stamp?.partition === partition && offset <= stamp.offset;
    if (isKnown) {
      // The tail has passed the deletion: nothing older can come.
      if (offset === stamp.offset && value === null) this.#stamps.delete(text);
      return undefined;
    }
    this.#stamps.set(text, { partition, offset, writer });
    if (catalogKey !== undefined) return this.catalog.replay(catalogKey, value);
    this.shard.replay(offset, key, value);
    return NO_RECORDS;
  }

  /**
   * The topic lost what was read of a partition. Rows stay as they are known, since to drop them
   * would end mirrors; those that the topic still has come again.
   */
  forgetPlaces(partition: number): void {
    for (const [text, stamp] of this.#stamps) {
      if (stamp.partition === partition) this.#stamps.set(text, { ...stamp, offset: -1 });
    }
  }
}
