/** Compacted logs under test: keyed batches, what is left of them, runs of the cleaner. */
import assert from 'node:assert/strict';
import { buildRecordBatch, decodeRecords, type NewBatch } from '../../src/protocol/record.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import type { Log } from '../../src/storage/log.ts';
import type { LogConfig } from '../../src/storage/log-config.ts';
import { DIRECTORY, follow, readAll, type SimHost } from './harness.ts';

/** Wall time of the records; the cleaner's clock is the simulation's. */
export const RECORD_TIME_MS = 1_000;

/** Every kind of batch is due, and every record old enough. */
export const COMPACTED: Partial<LogConfig> = {
  cleanupPolicy: 'compact',
  minCleanableDirtyRatio: 0,
  indexIntervalBytes: 100,
  fileDeleteDelayMs: 500,
  messageTimestampAfterMaxMs: Number.MAX_SAFE_INTEGER,
};

/** Key and value of each record, e.g. `['a', '1']`; a null value is a tombstone. */
export type Pairs = readonly (readonly [key: string | null, value: string | null])[];

const bytes = (text: string | null) => (text === null ? null : Buffer.from(text));

/** A batch of keyed records. */
export function keyed(pairs: Pairs, batch: Partial<NewBatch> = {}): Uint8Array {
  const records = pairs.map(([key, value], index) => ({
    key: bytes(key),
    value: bytes(value),
    timestamp: RECORD_TIME_MS + index,
  }));
  return buildRecordBatch({ records, partitionLeaderEpoch: 0, ...batch });
}

/** Appends keyed records at the end of the log; returns the first offset. */
export function put(log: Log, pairs: Pairs, batch: Partial<NewBatch> = {}): number {
  const baseOffset = batch.baseOffset ?? log.logEndOffset;
  follow(log, keyed(pairs, { ...batch, baseOffset }));
  return baseOffset;
}

/** A record that is left. */
export interface Left {
  readonly offset: number;
  readonly key: string | null;
  readonly value: string | null;
  readonly timestamp: bigint;
}

/** A batch that is left. */
export interface LeftBatch {
  readonly batch: RecordBatch;
  readonly records: readonly Left[];
}

/** All batches with their records. */
export function batchesOf(host: SimHost): LeftBatch[] {
  return readAll(host.log).map((seen) => {
    const batch = new RecordBatch(Buffer.from(seen.bytes, 'base64'));
    const text = (data: Uint8Array | null) => (data === null ? null : Buffer.from(data).toString());
    if (batch.count === 0) return { batch, records: [] };
    const decoded = [...decodeRecords(batch, host.runtime.compression, 1_000_000)];
    const records = batch.isControl
      ? []
      : decoded.map(({ offset, key, value, timestamp }) => {
          return { offset, key: text(key), value: text(value), timestamp };
        });
    return { batch, records };
  });
}

/** What is left as `offset:key=value`. */
export function left(host: SimHost): string[] {
  return batchesOf(host).flatMap(({ records }) =>
    records.map(({ offset, key, value }) => `${offset}:${key}=${value}`),
  );
}

/** Lets everything be stable, begins a new segment, compacts what is due. */
export async function compact(host: SimHost): Promise<void> {
  host.log.updateHighWatermark(host.log.logEndOffset);
  host.log.roll();
  await host.settle(host.manager.compactNow());
  assert.equal(host.log.isOffline, false);
}

/** File names of the log, without snapshots and small checkpoints. */
export function segmentFiles(host: SimHost): string[] {
  const names = (host.files().list(DIRECTORY) ?? []).map((entry) => entry.name);
  return names.filter((name) => /\.(log|index|timeindex|txnindex)(\.|$)/.test(name));
}

/** Checks a restart after a kill, with all derived state made anew from the batches. */
export async function restartFromBatches(host: SimHost): Promise<void> {
  await host.settle(host.log.flush());
  for (const { name } of host.files().list(DIRECTORY) ?? []) {
    if (/\.(index|timeindex|snapshot)$/.test(name)) host.files().remove(`${DIRECTORY}/${name}`);
  }
  await host.kill();
}
