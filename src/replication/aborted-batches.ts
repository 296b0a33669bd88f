/**
 * What a READ_COMMITTED consumer gets in place of aborted data of mirrored producers (rule P3).
 *
 * Stock Java consumers take producer ids of −2 and below, which every mirrored producer has, for
 * "none" and would hand out their aborted records. So each aborted data batch of such an id leaves
 * as a control batch with one COMMIT record over the same offsets, which every client skips and
 * advances over. `Partition.fetch` is the only caller. Invariants:
 * - The log's bytes are never changed; everything not replaced is handed on by reference.
 * - Without an aborted transaction of such an id in the range, nothing is looked at.
 * - Batches are judged by their headers and the aborted-transaction index, never by records.
 */
import { assert } from '../base/assert.ts';
import { buildTransactionMarker } from '../protocol/control-record.ts';
import { NO_PRODUCER_ID, RecordBatch } from '../protocol/record-batch.ts';
import { BatchHeader } from '../storage/batch-header.ts';
import type { FetchedAbort } from '../storage/log.ts';

/** Aborted transactions by producer, in log order: those of one producer never overlap. */
type AbortsByProducer = ReadonlyMap<bigint, readonly FetchedAbort[]>;

const header = new BatchHeader();

/**
 * The chunks of a READ_COMMITTED read as a consumer may have them; `aborted` are the transactions
 * that the read found, in the order of their markers. Without need the same array.
 */
export function hideAbortedBatches(
  chunks: readonly Uint8Array[],
  aborted: readonly FetchedAbort[],
): readonly Uint8Array[] {
  const byProducer = mirroredAborts(aborted);
  if (byProducer === undefined) return chunks;
  const served: Uint8Array[] = [];
  for (const chunk of chunks) hideInChunk(chunk, byProducer, served);
  return served;
}

function mirroredAborts(aborted: readonly FetchedAbort[]): AbortsByProducer | undefined {
  let byProducer: Map<bigint, FetchedAbort[]> | undefined;
  for (const transaction of aborted) {
    if (transaction.producerId >= NO_PRODUCER_ID) continue;
    byProducer ??= new Map();
    const known = byProducer.get(transaction.producerId);
    if (known === undefined) byProducer.set(transaction.producerId, [transaction]);
    else known.push(transaction);
  }
  return byProducer;
}

function hideInChunk(chunk: Uint8Array, aborts: AbortsByProducer, served: Uint8Array[]): void {
  let from = 0;
  for (let at = 0; at < chunk.length; at += header.size) {
    // The log has read the same headers to find where its last whole batch ends.
    assert(header.read(chunk, at) === undefined, 'the log served bytes that are no batch');
    if (!isAborted(aborts)) continue;
    if (at > from) served.push(chunk.subarray(from, at));
    served.push(standIn(new RecordBatch(chunk, at)));
    from = at + header.size;
  }
  if (from === 0) served.push(chunk);
  else if (from < chunk.length) served.push(chunk.subarray(from));
}

/** Whether the batch under `header` is data of one of the transactions. */
function isAborted(aborts: AbortsByProducer): boolean {
  if (header.producerIdHigh >= 0 || !header.isTransactional || header.isControl) return false;
  const transactions = aborts.get(header.producerId);
  if (transactions === undefined) return false;
  // The first that ends behind the batch: the others are over before it, or begin later.
  let low = 0;
  let high = transactions.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if ((transactions[middle] as FetchedAbort).lastOffset > header.lastOffset) high = middle;
    else low = middle + 1;
  }
  const transaction = transactions[low];
  return transaction !== undefined && transaction.firstOffset <= header.lastOffset;
}

function standIn(batch: RecordBatch): Uint8Array {
  return buildTransactionMarker({
    commit: true,
    coordinatorEpoch: 0,
    producerId: batch.producerId,
    producerEpoch: batch.producerEpoch,
    timestamp: batch.maxTimestamp,
    baseOffset: batch.baseOffset,
    lastOffset: batch.lastOffset,
    partitionLeaderEpoch: batch.partitionLeaderEpoch,
  });
}
