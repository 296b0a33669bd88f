/**
 * What happens to a source's batches on their way into the local log (F5, F6, P1, G20).
 *
 * `scanBatches` looks at every batch of a partition's answer before anything is written: sizes,
 * order, CRC32C, format, producer ids, source epochs. `rewriteBatches` then changes two fields in
 * place: the partition leader epoch (outside the CRC) and the producer id (with the CRC). Nothing
 * else is touched, decompressed or copied; a batch costs its 61 header bytes and one CRC pass.
 */
import { assert } from '../base/assert.ts';
import { forEachBatch, RecordBatch } from '../protocol/record-batch.ts';
import type { MirrorCause } from './causes.ts';
import type { ProducerIdMapping } from './producer-id-mapping.ts';
import type { SourceEpoch } from './state-row.ts';

/** Why an answer's batches must not be appended. */
export interface BatchProblem {
  readonly cause: MirrorCause;
  readonly message: string;
}

/** What `scanBatches` found. */
export interface BatchScan {
  /** Length of the whole batches; a batch cut off at the end is not counted. */
  readonly bytes: number;
  readonly batches: number;
  readonly records: number;
  /** −1 without batches. */
  readonly firstOffset: number;
  readonly lastOffset: number;
  /** Milliseconds of the newest record of the last batch, −1 without batches. */
  readonly maxTimestampMs: number;
  /** As given. */
  readonly knownEpoch: number;
  /** Each change of the source's leader epoch from `knownEpoch` on, in order. */
  readonly epochs: readonly SourceEpoch[];
  /** Length of the batches before the first of `epochs`. */
  readonly bytesOfKnownEpoch: number;
  /** The first bad batch; nothing of the answer may be written. */
  readonly problem: BatchProblem | undefined;
}

function corrupt(offset: number, what: string): BatchProblem {
  return { cause: 'CORRUPT_SOURCE_BATCH', message: `batch at offset ${offset}: ${what}` };
}

/** Walks the batches of one answer; see `scanBatches`. */
class Scan {
  readonly #knownEpoch: number;
  readonly #producerIds: ProducerIdMapping;
  readonly #epochs: SourceEpoch[] = [];
  #next: number;
  #epoch: number;
  #batches = 0;
  #records = 0;
  #firstOffset = -1;
  #lastOffset = -1;
  #maxTimestampMs = -1;
  #bytesOfKnownEpoch = -1;
  #problem: BatchProblem | undefined;

  constructor(expectedOffset: number, knownEpoch: number, producerIds: ProducerIdMapping) {
    this.#next = expectedOffset;
    this.#producerIds = producerIds;
    this.#epoch = knownEpoch;
    this.#knownEpoch = knownEpoch;
  }

  /** False: the batch must not be appended. */
  visit(batch: RecordBatch): boolean {
    this.#problem = this.#problemWith(batch);
    if (this.#problem !== undefined) return false;
    const { baseOffset, partitionLeaderEpoch } = batch;
    if (partitionLeaderEpoch !== this.#epoch && partitionLeaderEpoch >= 0) {
      if (this.#bytesOfKnownEpoch < 0) this.#bytesOfKnownEpoch = batch.position;
      this.#epochs.push({ epoch: partitionLeaderEpoch, startOffset: baseOffset });
      this.#epoch = partitionLeaderEpoch;
    }
    if (this.#batches === 0) this.#firstOffset = baseOffset;
    this.#batches++;
    this.#records += batch.count;
    this.#lastOffset = batch.lastOffset;
    this.#maxTimestampMs = batch.maxTimestampMs;
    this.#next = batch.lastOffset + 1;
    return true;
  }

  #problemWith(batch: RecordBatch): BatchProblem | undefined {
    const { baseOffset, lastOffset } = batch;
    if (!batch.validCrc()) {
      return corrupt(baseOffset, `its CRC32C is not ${batch.crc}, as it says`);
    }
    if (lastOffset < this.#next || (baseOffset < this.#next && this.#batches > 0)) {
      const expected = `${this.#next} or later is expected`;
      return corrupt(baseOffset, `it ends at ${lastOffset} where ${expected}`);
    }
    const mapped =
      !batch.hasProducerId ||
      this.#producerIds.map(batch.producerIdHigh, batch.producerIdLow, baseOffset);
    if (mapped !== undefined) return undefined;
    const id = `producer id ${batch.producerId}`;
    const message = `batch at offset ${baseOffset}: ${id} cannot be mirrored once more`;
    return { cause: 'PRODUCER_ID_OUT_OF_RANGE', message };
  }

  finish(bytes: number, problem: BatchProblem | undefined): BatchScan {
    return {
      bytes,
      batches: this.#batches,
      records: this.#records,
      firstOffset: this.#firstOffset,
      lastOffset: this.#lastOffset,
      maxTimestampMs: this.#maxTimestampMs,
      knownEpoch: this.#knownEpoch,
      epochs: this.#epochs,
      bytesOfKnownEpoch: this.#bytesOfKnownEpoch < 0 ? bytes : this.#bytesOfKnownEpoch,
      problem: this.#problem ?? problem,
    };
  }
}

/**
 * Verifies the batches of one partition's answer (F5). `expectedOffset` is the local log end: only
 * the first batch may begin below it (`firstOffset` then says so). `knownEpoch` is the newest
 * source epoch that is recorded durably (F10), −1 for none.
 */
export function scanBatches(
  records: Uint8Array,
  expectedOffset: number,
  knownEpoch: number,
  producerIds: ProducerIdMapping,
): BatchScan {
  const scan = new Scan(expectedOffset, knownEpoch, producerIds);
  const end = forEachBatch(records, 0, records.length, (batch) => scan.visit(batch));
  if (end.ok || end.problem === 'truncated') return scan.finish(end.position, undefined);
  if (end.problem === 'legacyMagic') {
    const message = 'the source holds batches of message format v0 or v1 (F13)';
    return scan.finish(end.position, { cause: 'UNSUPPORTED_MESSAGE_FORMAT', message });
  }
  const message = `bytes at ${end.position} of the answer are no batch: ${end.problem}`;
  return scan.finish(end.position, { cause: 'CORRUPT_SOURCE_BATCH', message });
}

/** Rewrites the whole batches in `records`, which `scanBatches` accepted, in place (F6, P1). */
export function rewriteBatches(
  records: Uint8Array,
  leaderEpoch: number,
  producerIds: ProducerIdMapping,
): void {
  const batch = new RecordBatch(records);
  for (let at = 0; at < records.length; at = batch.end) {
    batch.moveTo(at);
    batch.setPartitionLeaderEpoch(leaderEpoch);
    if (!batch.hasProducerId) continue;
    const { producerIdHigh, producerIdLow, baseOffset } = batch;
    const mapped = producerIds.map(producerIdHigh, producerIdLow, baseOffset);
    assert(mapped !== undefined, 'a batch that was accepted has an id that cannot be mapped');
    batch.rewriteProducerIdHalves(mapped.high, mapped.low);
  }
}
