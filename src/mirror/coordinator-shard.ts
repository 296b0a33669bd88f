/**
 * One shard of the mirror coordinator: the rows of one `__mirror_state` partition (rules C2, C4).
 *
 * Runs on the coordinator runtime, which appends what `decideWrite` returns and only then lets
 * `replay` change the rows. Invariants (rule S4):
 * - A row moves only along the table of `states.ts`, by one state epoch, and never under a leader
 *   epoch older than the one that wrote last, unless for a newer membership: the leader epoch of a
 *   topic that was deleted and made again under its id starts again at 0, its membership is newer.
 * - An identical repeat of the last write is a success without a record.
 */
import type { Uuid } from '../base/uuid.ts';
import type { CoordinatorRecord, CoordinatorShard, Decision } from '../coordinator/runtime.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import {
  decodeRow,
  decodeRowKey,
  encodeRow,
  encodeRowKey,
  type MirrorStateRow,
  type RowKey,
  rowKeyText,
} from './state-row.ts';
import { isLegalMove, MirrorState } from './states.ts';

/** A row to be written; its state epoch is one above that of the row it replaces. */
export interface RowWrite {
  readonly key: RowKey;
  /** Null deletes the row (rule B2: its topic is gone). */
  readonly row: MirrorStateRow | null;
}

/** A row and its name. */
export interface KeyedRow {
  readonly key: RowKey;
  readonly row: MirrorStateRow;
}

function sameBytes(a: Uint8Array, b: Uint8Array): boolean {
  return Buffer.compare(a, b) === 0;
}

/** Checks one write against the row it would replace (rules S1, S4). */
export function checkWrite(current: MirrorStateRow | undefined, next: MirrorStateRow): ErrorCode {
  const isOlderLeader = current !== undefined && next.leaderEpoch < current.leaderEpoch;
  if (isOlderLeader && next.membershipOffset <= current.membershipOffset) {
    return errors.FENCED_LEADER_EPOCH.code;
  }
  if (next.stateEpoch !== (current?.stateEpoch ?? 0) + 1) return errors.FENCED_STATE_EPOCH.code;
  if (!isLegalMove(current, next.state)) return errors.INVALID_REQUEST.code;
  return errors.NONE.code;
}

/** See the file header. */
export class MirrorShard implements CoordinatorShard {
  readonly #rows = new Map<string, KeyedRow>();
  readonly #whenLoaded: () => void;

  constructor(whenLoaded: () => void = () => {}) {
    this.#whenLoaded = whenLoaded;
  }

  onLoaded(): void {
    this.#whenLoaded();
  }

  /** The durable row, or undefined: a definite "no row". */
  row(key: RowKey): MirrorStateRow | undefined {
    return this.#rows.get(rowKeyText(key))?.row;
  }

  /** Every row here about one partition of a topic id, whatever its mirror. */
  rowsOf(topicId: Uuid, partition: number): KeyedRow[] {
    return [...this.#rows.values()].filter(
      ({ key }) => key.topicId === topicId && key.partition === partition,
    );
  }

  /** Every row of the shard. */
  rows(): KeyedRow[] {
    return [...this.#rows.values()];
  }

  /** One error code per write; those accepted are in the records. */
  decideWrite(writes: readonly RowWrite[]): Decision<ErrorCode[]> {
    const records: CoordinatorRecord[] = [];
    const accepted = new Map<string, MirrorStateRow | undefined>();
    const response = writes.map(({ key, row }) => {
      const text = rowKeyText(key);
      const current = accepted.has(text) ? accepted.get(text) : this.#rows.get(text)?.row;
      if (row === null) {
        if (current !== undefined) records.push({ key: encodeRowKey(key), value: null });
        accepted.set(text, undefined);
        return errors.NONE.code;
      }
      const value = encodeRow(row);
      if (current !== undefined && sameBytes(encodeRow(current), value)) return errors.NONE.code;
      const error = checkWrite(current, row);
      if (error !== errors.NONE.code) return error;
      records.push({ key: encodeRowKey(key), value });
      accepted.set(text, row);
      return errors.NONE.code;
    });
    return { records, response };
  }

  /**
   * Deletes a row that serves a membership older than the given, if its partition was not stopped:
   * a membership is only ever renewed when all is STOPPED (A3), so its topic was deleted since.
   */
  decideDiscard(key: RowKey, membershipOffset: number): Decision<ErrorCode> {
    const current = this.row(key);
    const isFormer =
      current !== undefined &&
      current.membershipOffset < membershipOffset &&
      current.state !== MirrorState.STOPPED;
    const records = isFormer ? [{ key: encodeRowKey(key), value: null }] : [];
    return { records, response: errors.NONE.code };
  }

  /** Deletes up to `limit` rows whose topic is gone (rule B2); answers how many. */
  decideSweep(isGone: (keyed: KeyedRow) => boolean, limit: number): Decision<number> {
    const records: CoordinatorRecord[] = [];
    for (const keyed of this.#rows.values()) {
      if (records.length >= limit) break;
      if (isGone(keyed)) records.push({ key: encodeRowKey(keyed.key), value: null });
    }
    return { records, response: records.length };
  }

  replay(_offset: number, keyBytes: Uint8Array, value: Uint8Array | null): void {
    const key = decodeRowKey(keyBytes);
    // A record type of a later version: not ours to understand, and kept by the log.
    if (key === undefined) return;
    if (value === null) this.#rows.delete(rowKeyText(key));
    else this.#rows.set(rowKeyText(key), { key, row: decodeRow(value) });
  }
}
