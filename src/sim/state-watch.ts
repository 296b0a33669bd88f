/**
 * The durable mirror states, read from the `__mirror_state` log itself, and the rules for them.
 *
 * Looked at after every event. Judged by the contract's text and not by the product's table: legal
 * moves (S1), one state epoch at a time and no older leader epoch (S4), a new episode only for a
 * newer membership (S7), an exclusive LMO that a stop before mirroring leaves alone (D2, D4). A row
 * is durable when it is committed; from then on neither a kill nor a power loss takes it (S2).
 */
import { assert, present } from '../base/assert.ts';
import {
  decodeRow,
  decodeRowKey,
  MIRROR_STATE_TOPIC,
  type MirrorStateRow,
  type RowKey,
} from '../mirror/state-row.ts';
import { decodeRecords } from '../protocol/record.ts';
import { batchOf, LogShadow, type SeenBatch } from './log-shadow.ts';
import type { SimCluster } from './sim-cluster.ts';
import { noCompression } from './sim-compression.ts';

const MAX_BATCH_BYTES = 64 * 1024 * 1024;

/** State codes of the contract, §2. */
const NAMES: ReadonlyMap<number, string> = new Map([
  [0, 'PREPARING'],
  [1, 'MIRRORING'],
  [2, 'STOPPING'],
  [4, 'STOPPED'],
  [8, 'FAILED'],
  [32, 'PAUSED'],
]);

/** Rule S1; FAILED goes back to where it came from. */
const MOVES: Readonly<Record<string, readonly string[]>> = {
  UNKNOWN: ['PREPARING', 'STOPPING', 'FAILED'],
  PREPARING: ['MIRRORING', 'STOPPING', 'FAILED'],
  MIRRORING: ['PAUSED', 'STOPPING', 'FAILED'],
  PAUSED: ['MIRRORING', 'STOPPING', 'FAILED'],
  STOPPING: ['STOPPED', 'FAILED'],
  STOPPED: ['PREPARING'],
  FAILED: ['STOPPING'],
};

/** The name of a row's state; a code that is never stored is a broken invariant. */
export function nameOf(row: MirrorStateRow | undefined): string {
  if (row === undefined) return 'UNKNOWN';
  return present(NAMES.get(row.state), `the name of the stored state ${row.state}`);
}

/** Whether `to` may replace `from`; throws when not. */
export function checkMove(from: MirrorStateRow | undefined, to: MirrorStateRow): void {
  const [before, after] = [nameOf(from), nameOf(to)];
  const epoch = from?.stateEpoch ?? 0;
  assert(to.stateEpoch === epoch + 1, `S4: state epoch ${epoch} is followed by ${to.stateEpoch}`);
  assert(to.leaderEpoch >= (from?.leaderEpoch ?? -1), 'S4: an older leader epoch writes');
  if (before === after) return;
  const returns = before === 'FAILED' && NAMES.get(from!.previousState) === after;
  const legal = returns || MOVES[before]!.includes(after);
  assert(legal, `S1: ${before} is followed by ${after}`);
  if (before === 'STOPPED') {
    const newer = to.membershipOffset > from!.membershipOffset;
    assert(newer, `S7: a new episode for membership ${to.membershipOffset}, which is not newer`);
  }
  if (after === 'STOPPED' && !to.reachedMirroring) {
    const kept = from?.lastMirroredOffset ?? -1;
    assert(to.lastMirroredOffset === kept, `D2: LMO ${kept} became ${to.lastMirroredOffset}`);
  }
}

/** A durable row became another one. */
export type RowListener = (
  key: RowKey,
  from: MirrorStateRow | undefined,
  to: MirrorStateRow,
) => void;

/** See the file header. */
export class StateWatch {
  readonly #cluster: SimCluster;
  readonly #onRow: RowListener;
  readonly #logs = new Map<number, LogShadow>();
  readonly #rows = new Map<string, MirrorStateRow>();

  constructor(cluster: SimCluster, onRow: RowListener) {
    this.#cluster = cluster;
    this.#onRow = onRow;
  }

  /** The durable row of a partition under one mirror. */
  row({ mirror, topicId, partition }: RowKey): MirrorStateRow | undefined {
    return this.#rows.get(`${mirror}:${topicId}:${partition}`);
  }

  /** Reads what is new. */
  look(): void {
    const broker = this.#cluster.broker;
    const topic = broker?.services.metadata.image.topicsByName.get(MIRROR_STATE_TOPIC);
    if (topic === undefined) return;
    for (const index of topic.partitions.keys()) {
      const log = this.#cluster.partition(MIRROR_STATE_TOPIC, index)?.log;
      if (log === undefined || log.isOffline) continue;
      let shadow = this.#logs.get(index);
      if (shadow === undefined) {
        shadow = new LogShadow();
        this.#logs.set(index, shadow);
      }
      const lost = `S2: ${MIRROR_STATE_TOPIC}-${index} lost rows that were durable`;
      assert(log.logEndOffset >= shadow.end, lost);
      // After a restart it takes a while until the log knows how much of it is committed.
      if (log.highWatermark < shadow.end) continue;
      const { cut, added } = shadow.follow(log, log.highWatermark);
      assert(cut.length === 0, lost);
      for (const batch of added) this.#replay(batch);
    }
  }

  #replay(seen: SeenBatch): void {
    for (const { key, value } of decodeRecords(batchOf(seen), noCompression, MAX_BATCH_BYTES)) {
      const named = key === null ? undefined : decodeRowKey(key);
      if (named === undefined) continue;
      const text = `${named.mirror}:${named.topicId}:${named.partition}`;
      if (value === null) {
        this.#rows.delete(text);
        continue;
      }
      const row = decodeRow(value);
      const before = this.#rows.get(text);
      checkMove(before, row);
      this.#rows.set(text, row);
      this.#onRow(named, before, row);
    }
  }
}
