/**
 * What must hold between a source, a mirror and a destination, after every event.
 *
 * Remembers both logs and the states, so it also judges what happened while a broker was down.
 * - F5, F6, P1: what the destination holds is the source's, batch by batch, without a hole.
 * - F1: nothing beyond the source's LSO. F8: no log start beyond the source's. O3: the same id.
 * - S1, S4, S7, D2: state-watch.ts. S2: appends only in MIRRORING, cuts only where the contract
 *   has them. R1: a write of the destination's own is in the log only when STOPPED was durable.
 * - D1, D4, D5: at STOPPED the log ends, stable, at the LMO, cut no deeper than transactions ask.
 * - T4: whatever a cut dropped is in lost-and-found.
 * What a power loss may take is not claimed: see `sourceLostPower` and `destinationLostPower`.
 */
import { assert } from '../base/assert.ts';
import type { MirrorStateRow, RowKey } from '../mirror/state-row.ts';
import type { Log } from '../storage/log.ts';
import { batchOf, LogShadow, readLog, type SeenBatch, sameBytes } from './log-shadow.ts';
import { keptTails } from './lost-tails.ts';
import { copyProblem, kinProblem } from './mirror-copy.ts';
import type { SimCluster } from './sim-cluster.ts';
import { nameOf, StateWatch } from './state-watch.ts';

/** A topic that may be mirrored. */
export interface WatchedTopic {
  readonly name: string;
  readonly partitions: number;
}

/** Whom to watch. */
export interface MirrorInvariantsOptions {
  readonly source: SimCluster;
  readonly destination: SimCluster;
  readonly mirror: string;
  readonly topics: readonly WatchedTopic[];
  /** Whether a client of the destination wrote this batch. */
  readonly isLocal: (batch: Uint8Array) => boolean;
  /** A durable state changed. */
  readonly onMove?: (from: string, to: string) => void;
}

/** What is known of one partition. */
interface Watched {
  readonly topic: string;
  readonly index: number;
  readonly source: LogShadow;
  readonly destination: LogShadow;
  /** Batches that a power loss took from the source, by base offset. */
  readonly lost: Map<number, SeenBatch[]>;
  maxStable: number;
  maxSourceStart: number;
  /** The destination's log end when it was first seen; what lies below came before this watch. */
  givenEnd: number | undefined;
  row: MirrorStateRow | undefined;
  /** Whether the topic belonged to this mirror at the last look. */
  isMember: boolean;
  /** Durable states since the last look at the destination, the one before included. */
  readonly states: Set<string>;
  /** What this stop has cut so far. */
  stopCut: SeenBatch[];
  /** The row of a stop whose log is not looked at yet. */
  stopped: MirrorStateRow | undefined;
}

/** Where a log that starts and ends so must be cut so that no transaction is open (D1). */
export function stableEnd(batches: readonly SeenBatch[], logStart: number, logEnd: number): number {
  let end = logEnd;
  for (;;) {
    const open = new Map<bigint, number>();
    let expected = -1;
    for (const seen of batches) {
      if (seen.nextOffset > end) break;
      // The log started anew behind a gap: what was open before is forgotten with the rest.
      if (seen.baseOffset !== expected) open.clear();
      expected = seen.nextOffset;
      const batch = batchOf(seen);
      if (batch.isControl) open.delete(batch.producerId);
      else if (batch.isTransactional && !open.has(batch.producerId)) {
        open.set(batch.producerId, Math.max(logStart, seen.baseOffset));
      }
    }
    if (expected < end) open.clear();
    const first = Math.min(end, ...open.values());
    if (first === end) return end;
    end = first;
  }
}

/** See the file header. */
export class MirrorInvariants {
  readonly states: StateWatch;
  readonly #options: MirrorInvariantsOptions;
  readonly #watched: Watched[] = [];
  readonly #ids = new Map<string, string>();
  #sourceLosses = 0;
  #destinationLosses = 0;
  #destinationLost = false;
  #localBatches = 0;
  #mirroredBatches = 0;

  constructor(options: MirrorInvariantsOptions) {
    this.#options = options;
    this.states = new StateWatch(options.destination, (key, from, to) =>
      this.#onRow(key, from, to),
    );
    for (const { name, partitions } of options.topics) {
      for (let index = 0; index < partitions; index++) this.#watched.push(newWatched(name, index));
    }
  }

  /** Batches seen so far at the destination: mirrored, and its clients' own. */
  get seen(): { readonly mirrored: number; readonly local: number } {
    return { mirrored: this.#mirroredBatches, local: this.#localBatches };
  }

  /** From now on the source's log may have gone back (rule F10). */
  sourceLostPower(): void {
    this.#sourceLosses++;
  }

  /** Batches that were not synced are gone, in any combination; durable rows are not (S2). */
  destinationLostPower(): void {
    this.#destinationLosses++;
    this.#destinationLost = true;
  }

  /** Looks at both clusters; throws a Fault that names rule and partition. */
  check(): void {
    const { source, destination } = this.#options;
    this.#learnIds();
    if (source.broker !== undefined) for (const each of this.#watched) this.#lookAtSource(each);
    if (destination.broker === undefined) return;
    this.states.look();
    for (const each of this.#watched) this.#lookAtDestination(each);
    this.#destinationLost = false;
  }

  /** Why the topic is not yet in `state` as it should be at rest; undefined: it is. */
  unsettled(topic: string, state: 'MIRRORING' | 'STOPPED'): string | undefined {
    for (const watched of this.#watched) {
      if (watched.topic !== topic) continue;
      const problem = this.#unsettled(watched, state);
      if (problem !== undefined) return `${watched.topic}-${watched.index} ${problem}`;
    }
    return undefined;
  }

  /** The state, and why, of every partition. */
  describe(): string {
    const parts = this.#watched.map(({ topic, index, row, destination, source }) => {
      const why = row === undefined || row.cause === '' ? '' : ` (${row.cause}: ${row.message})`;
      return `${topic}-${index} ${nameOf(row)}${why} ${destination.end}/${source.end}`;
    });
    return parts.join(', ');
  }

  /** The durable state of a partition, by `topic-index`. */
  stateAt(at: string): string {
    return nameOf(this.#watched.find((w) => `${w.topic}-${w.index}` === at)?.row);
  }

  /** Of every partition, by `topic-index`; −1 for none. */
  lastMirroredOffsets(): Map<string, number> {
    return new Map(
      this.#watched.map(({ topic, index, row }) => [
        `${topic}-${index}`,
        row?.lastMirroredOffset ?? -1,
      ]),
    );
  }

  /** Whether every partition of the topic is in MIRRORING, or waits for an operator. */
  isUnderWay(topic: string): boolean {
    return this.#watched.every((watched) => {
      if (watched.topic !== topic || nameOf(watched.row) === 'MIRRORING') return true;
      const [here] = this.#logs(watched);
      return here !== undefined && this.#awaitsOperator(watched, here);
    });
  }

  /** The remembered batch of the source that begins at an offset. */
  sourceBatch(topic: string, index: number, baseOffset: number): SeenBatch | undefined {
    const watched = this.#watched.find((w) => w.topic === topic && w.index === index);
    return watched?.source.at(baseOffset);
  }

  /** At rest: the whole log once more, against the source as it is now. Both must run. */
  checkIdentical(topic: string): void {
    for (const watched of this.#watched.filter((each) => each.topic === topic)) {
      const [here, there] = this.#logs(watched);
      assert(here !== undefined && there !== undefined, 'both brokers run');
      if (this.#awaitsOperator(watched, here)) continue;
      // Deleted records may come back with a kill, on either side (the log start is written down
      // now and then). Where the source lost records below it, too, nobody can compare those.
      const from = watched.lost.size > 0 ? watched.maxSourceStart : 0;
      const claimed = ({ nextOffset }: SeenBatch): boolean => nextOffset > from;
      const expected = readLog(there).filter(isBelow(here.logEndOffset)).filter(claimed);
      assertIdentical(watched, readLog(here).filter(claimed), expected);
    }
  }

  #logs({ topic, index }: Watched): [Log | undefined, Log | undefined] {
    const { source, destination } = this.#options;
    return [destination.partition(topic, index)?.log, source.partition(topic, index)?.log];
  }

  #unsettled(watched: Watched, state: 'MIRRORING' | 'STOPPED'): string | undefined {
    const [here, there] = this.#logs(watched);
    if (here === undefined || there === undefined) return 'is not on both brokers';
    if (state === 'MIRRORING' && this.#awaitsOperator(watched, here)) return undefined;
    if (nameOf(watched.row) !== state) return `is ${nameOf(watched.row)}`;
    if (state === 'STOPPED') return undefined;
    if (here.logEndOffset !== there.lastStableOffset) {
      return `ends at ${here.logEndOffset}, the source is stable up to ${there.lastStableOffset}`;
    }
    if (here.logStartOffset < there.logStartOffset) {
      return `starts at ${here.logStartOffset}, the source at ${there.logStartOffset} (F8)`;
    }
    return undefined;
  }

  /** What the contract leaves to an operator, who alone may have a whole log dropped. */
  #awaitsOperator(watched: Watched, log: Log): boolean {
    const { row, lost, source, destination, maxSourceStart } = watched;
    if (row === undefined || nameOf(row) !== 'FAILED' || log.logEndOffset === 0) return false;
    // T3: nothing of the log is known to be mirrored.
    if (row.cause === 'WOULD_DISCARD_ALL') return row.lastMirroredOffset <= 0;
    if (row.cause !== 'SOURCE_DIVERGED' || lost.size === 0) return false;
    // F10: the source lost all that was here; what it had deleted may have come back with a crash.
    const here = destination.batches.filter(({ nextOffset }) => nextOffset > maxSourceStart);
    return here.every(({ baseOffset, bytes }) => {
      const original = source.at(baseOffset);
      return original === undefined || copyProblem(bytes, original.bytes) !== undefined;
    });
  }

  /** O3. */
  #learnIds(): void {
    const { source, destination, topics } = this.#options;
    for (const { name } of topics) {
      const there = source.broker?.services.metadata.image.topicsByName.get(name)?.id;
      if (there !== undefined) this.#ids.set(name, there);
      const here = destination.broker?.services.metadata.image.topicsByName.get(name)?.id;
      const known = this.#ids.get(name);
      const same = here === undefined || known === undefined || here === known;
      assert(same, `O3: ${name} has id ${here} here and ${known} at the source`);
    }
  }

  #onRow(key: RowKey, from: MirrorStateRow | undefined, to: MirrorStateRow): void {
    if (key.mirror !== this.#options.mirror) return;
    const watched = this.#watched.find(
      ({ topic, index }) => topic === to.topicName && index === key.partition,
    );
    if (watched === undefined) return;
    const [before, after] = [nameOf(from), nameOf(to)];
    watched.row = to;
    watched.states.add(after);
    if (before === after) return;
    if (after === 'STOPPING' && before !== 'FAILED') watched.stopCut = [];
    if (after === 'STOPPED' && to.reachedMirroring) watched.stopped = to;
    this.#options.onMove?.(before, after);
  }

  // --- the source -------------------------------------------------------------------------------

  #lookAtSource(watched: Watched): void {
    const log = this.#options.source.partition(watched.topic, watched.index)?.log;
    if (log === undefined || log.isOffline) return;
    const { cut } = watched.source.follow(log);
    if (cut.length > 0) {
      const at = `${watched.topic}-${watched.index}`;
      assert(this.#sourceLosses > 0, `the source lost ${cut.length} batches of ${at} in a kill`);
      watched.maxStable = 0;
      for (const batch of cut) {
        watched.lost.set(batch.baseOffset, [...(watched.lost.get(batch.baseOffset) ?? []), batch]);
      }
    }
    watched.maxStable = Math.max(watched.maxStable, log.lastStableOffset);
    watched.maxSourceStart = Math.max(watched.maxSourceStart, log.logStartOffset);
  }

  // --- the destination --------------------------------------------------------------------------

  #lookAtDestination(watched: Watched): void {
    const { topic, index } = watched;
    const log = this.#options.destination.partition(topic, index)?.log;
    if (log === undefined || log.isOffline) return;
    const { cut, added } = watched.destination.follow(log);
    try {
      if (watched.givenEnd === undefined && watched.row === undefined) {
        watched.givenEnd = log.logEndOffset;
      } else {
        this.#checkCut(watched, cut, log);
        for (const [at, batch] of added.entries()) this.#checkAdded(watched, batch, added[at - 1]);
      }
      this.#checkStart(watched, log);
      this.#checkStopped(watched, log);
    } catch (error) {
      throw new Error(`${topic}-${index}: ${(error as Error).message}`, { cause: error });
    }
    watched.isMember = this.#isMember(topic);
    watched.states.clear();
    watched.states.add(nameOf(watched.row));
  }

  #isMember(topic: string): boolean {
    const image = this.#options.destination.broker?.services.metadata.image;
    return image?.membership(topic)?.mirror === this.#options.mirror;
  }

  #checkCut(watched: Watched, dropped: readonly SeenBatch[], log: Log): void {
    const { states, row, maxSourceStart } = watched;
    // F8: what the source has deleted may go at any moment, for instance in part, by a crash.
    const cut = states.has('MIRRORING')
      ? dropped.filter(({ nextOffset }) => nextOffset > maxSourceStart)
      : dropped;
    if (cut.length === 0 || this.#destinationLost) return;
    const [first, last] = [cut[0]!, cut.at(-1)!];
    const what = `[${first.baseOffset}, ${last.nextOffset}) cut while ${[...states].join(', ')}`;
    // A row that lost its newest source epoch makes F10 cut too deep; that is mirrored again.
    const mayDiverge = watched.lost.size > 0 || this.#destinationLosses > 0;
    const diverged = states.has('MIRRORING') && mayDiverge;
    const may = states.has('PREPARING') || states.has('STOPPING') || diverged;
    assert(may, `D1, S2: ${what}`);
    if (states.has('STOPPING')) watched.stopCut = [...cut, ...watched.stopCut];
    const lmo = row?.lastMirroredOffset ?? -1;
    const deep = first.baseOffset < lmo;
    if (states.has('PREPARING') && !diverged) assert(!deep, `T2: ${what}, below LMO ${lmo}`);
    const id = this.#ids.get(watched.topic) ?? '';
    const kept = keptTails(this.#options.destination, log.directory, watched, id);
    for (const { baseOffset, bytes } of cut) {
      const found = kept.some((file) => Buffer.from(file).includes(Buffer.from(bytes)));
      assert(found, `T4: the batch at ${baseOffset} is not in lost-and-found: ${what}`);
    }
    watched.givenEnd = Math.min(watched.givenEnd ?? 0, first.baseOffset);
  }

  #checkAdded(watched: Watched, batch: SeenBatch, before: SeenBatch | undefined): void {
    const { states, row } = watched;
    const known = [...states].join(', ');
    const what = `[${batch.baseOffset}, ${batch.nextOffset})`;
    if (this.#options.isLocal(batch.bytes)) {
      this.#localBatches++;
      if (this.#destinationLost) return;
      // Without membership in this mirror it is none of its business yet.
      if (!watched.isMember || !this.#isMember(watched.topic)) return;
      assert(states.has('STOPPED'), `R1: a client's batch ${what} was taken while ${known}`);
      const lmo = row?.lastMirroredOffset ?? -1;
      assert(batch.baseOffset >= lmo, `D5: a client's batch ${what} lies below the LMO ${lmo}`);
      return;
    }
    this.#mirroredBatches++;
    assert(states.has('MIRRORING') || this.#destinationLost, `S2: ${what} mirrored while ${known}`);
    const problem = this.#copyProblem(watched, batch);
    assert(problem === undefined, `F5: batch ${what}: ${problem}`);
    const stable = watched.maxStable;
    const within = batch.nextOffset <= stable || watched.lost.size > 0;
    assert(within, `F1: ${what} reaches beyond the source's LSO ${stable}`);
    const previous = before ?? predecessor(watched.destination, batch);
    const follows =
      previous === undefined ||
      previous.nextOffset === batch.baseOffset ||
      previous.nextOffset <= watched.maxSourceStart;
    assert(follows, `F5: ${what} leaves a hole behind ${previous?.nextOffset}`);
  }

  #copyProblem({ source, lost }: Watched, batch: SeenBatch): string | undefined {
    const original = source.at(batch.baseOffset);
    const candidates = [...(original === undefined ? [] : [original])];
    candidates.push(...(lost.get(batch.baseOffset) ?? []));
    if (candidates.length === 0) return 'the source has no batch there';
    const problems = candidates.map(({ bytes }) => copyProblem(batch.bytes, bytes));
    return problems.includes(undefined) ? undefined : problems[0];
  }

  #checkStart(watched: Watched, log: Log): void {
    const { maxSourceStart, givenEnd = 0 } = watched;
    const limit = Math.max(maxSourceStart, givenEnd);
    assert(log.logStartOffset <= limit, `F8: starts at ${log.logStartOffset}, source at ${limit}`);
  }

  /** D1, D4, D5. */
  #checkStopped(watched: Watched, log: Log): void {
    const { row, destination } = watched;
    if (row === undefined || nameOf(row) !== 'STOPPED' || !row.reachedMirroring) return;
    const open = log.openTransactions().length;
    assert(open === 0, `D5: ${open} transactions are open in STOPPED`);
    const { logStartOffset, lastStableOffset, logEndOffset } = log;
    const stable = lastStableOffset === logEndOffset;
    const bounds = `start ${logStartOffset}, LSO ${lastStableOffset}, LEO ${logEndOffset}`;
    assert(stable, `D5: not stable to the end in STOPPED: ${bounds}`);
    const isWhole = logEndOffset >= row.lastMirroredOffset;
    assert(isWhole, `D4: ends below the LMO ${row.lastMirroredOffset}: ${bounds}`);
    if (watched.stopped === undefined || this.#destinationLost) return;
    watched.stopped = undefined;
    const lmo = row.lastMirroredOffset;
    const own = destination.batchesOfThisStart.filter(isBelow(lmo));
    const ownEnd = own.at(-1)?.nextOffset ?? lmo;
    assert(ownEnd <= lmo, `D4: the LMO ${lmo} is inside a batch that ends at ${ownEnd}`);
    const first = destination.batches.find(({ baseOffset }) => baseOffset >= lmo);
    const localFirst = first === undefined ? log.logEndOffset === lmo : first.baseOffset === lmo;
    assert(localFirst, `D4: LMO ${lmo}, but the log goes on at ${first?.baseOffset}`);
    const atStop = [...own, ...watched.stopCut];
    const end = Math.max(lmo, atStop.at(-1)?.nextOffset ?? 0);
    const expected = stableEnd(atStop, log.logStartOffset, end);
    assert(expected === lmo, `D1: cut to ${lmo}, where transactions ask for ${expected}`);
  }
}

function newWatched(topic: string, index: number): Watched {
  return {
    topic,
    index,
    source: new LogShadow(),
    destination: new LogShadow(),
    lost: new Map(),
    maxStable: 0,
    maxSourceStart: 0,
    givenEnd: undefined,
    row: undefined,
    isMember: false,
    states: new Set(['UNKNOWN']),
    stopCut: [],
    stopped: undefined,
  };
}

function isBelow(offset: number): (batch: SeenBatch) => boolean {
  return ({ baseOffset }) => baseOffset < offset;
}

function predecessor(shadow: LogShadow, batch: SeenBatch): SeenBatch | undefined {
  const at = shadow.batches.lastIndexOf(batch);
  return at > 0 ? shadow.batches[at - 1] : undefined;
}

function assertIdentical(
  { topic, index }: Watched,
  here: readonly SeenBatch[],
  there: readonly SeenBatch[],
): void {
  const first = here[0]?.baseOffset ?? Number.POSITIVE_INFINITY;
  const expected = there.filter(({ baseOffset }) => baseOffset >= first);
  const at = `${topic}-${index}`;
  assert(here.length === expected.length, `${at}: ${here.length} of ${expected.length} batches`);
  for (const [i, { baseOffset, bytes }] of here.entries()) {
    const original = expected[i]!.bytes;
    const problem = sameBytes(bytes, original) ? undefined : kinProblem(bytes, original);
    assert(problem === undefined, `${at}: batch at ${baseOffset}: ${problem}`);
  }
}
