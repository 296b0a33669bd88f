/**
 * Dumps a file of record batches: a segment's .log, or a snapshot of the metadata log.
 *
 * Batch headers always; records on request; with `deep`, every CRC is checked, every record is
 * read, and offsets must ascend within the file, from the offset in its name on. Damage that hides
 * where the next batch starts ends the file; other damage is told and passed over.
 */
import { ByteReader, MalformedBytes } from '../base/bytes.ts';
import type { Compression, Disk } from '../io/runtime.ts';
import { codec } from '../protocol/codec.ts';
import {
  ControlRecordType,
  controlRecordType,
  parseTransactionMarker,
} from '../protocol/control-record.ts';
import {
  KRaftVersionRecord,
  LeaderChangeMessage,
  SnapshotFooterRecord,
  SnapshotHeaderRecord,
  VotersRecord,
} from '../protocol/messages/control-records.ts';
import { type DecodedRecord, decodeRecords } from '../protocol/record.ts';
import { incrementSequence, NO_SEQUENCE, type RecordBatch } from '../protocol/record-batch.ts';
import { inVersions, type Message } from '../protocol/schema.ts';
import { MAX_DECOMPRESSED_BYTES } from './append-validation.ts';
import { BatchFile } from './batch-file.ts';
import type { HeaderProblem } from './batch-header.ts';
import { type DumpRows, problem, row } from './dump-row.ts';
import { MAX_OFFSET_SPAN } from './log-segment.ts';

/** How often a reader waits for the rest of a batch that is being written. */
const MAX_PAUSES = 5;

/** Reads a record of an internal topic into fields; may throw MalformedBytes. */
export type RecordDecoder = (
  key: Uint8Array | null,
  value: Uint8Array | null,
) => Readonly<Record<string, unknown>>;

/** What to show of a file of batches. */
export interface SegmentDumpOptions {
  readonly compression: Compression;
  readonly records: boolean;
  readonly deep: boolean;
  /** For the records of an internal topic. */
  readonly decoder: RecordDecoder | undefined;
  /** No batch may start below it; of a segment, its base offset or the end of the one before. */
  readonly minOffset: number;
  /** Of a segment: no offset may be further from it than an index can say. */
  readonly baseOffset: number | undefined;
}

const HEADER_PROBLEMS: Readonly<Record<HeaderProblem, string>> = {
  truncated: 'the file ends inside a batch',
  malformed: 'not a record batch',
  magic: 'message format 0 or 1, which is not supported',
};

/** Rows of one file; the last one, of kind `end`, counts what was seen. */
export function* dumpSegment(disk: Disk, path: string, options: SegmentDumpOptions): DumpRows {
  const file = new BatchFile(disk, path);
  const seen = { batches: 0, records: 0, nextOffset: options.minOffset };
  try {
    for (let pauses = 0; ; ) {
      const batch = file.next(options.records || options.deep);
      if (batch !== undefined) {
        yield* dumpBatch(batch, file.position, seen.nextOffset, options);
        seen.batches++;
        seen.records += batch.count;
        seen.nextOffset = Math.max(seen.nextOffset, batch.nextOffset);
        continue;
      }
      if (file.problem !== 'truncated' || pauses === MAX_PAUSES) break;
      pauses++;
      yield undefined;
      if (file.hasGrown()) pauses = 0;
    }
    if (file.problem !== undefined) {
      yield problem(HEADER_PROBLEMS[file.problem], {
        position: file.position,
        offset: seen.nextOffset,
        unreadableBytes: file.size - file.position,
      });
    }
    yield row('end', { ...seen, bytes: file.position });
  } finally {
    file.close();
  }
}

function* dumpBatch(
  batch: RecordBatch,
  position: number,
  minOffset: number,
  options: SegmentDumpOptions,
): DumpRows {
  const { deep } = options;
  const isValid = !deep || batch.validCrc();
  yield row('batch', batchFields(batch, position, deep ? isValid : undefined));
  const where = { position, offset: batch.baseOffset, lastOffset: batch.lastOffset };
  if (!isValid) {
    yield problem('the CRC of the batch does not match its bytes', where);
    return;
  }
  if (deep && batch.baseOffset < minOffset) {
    yield problem(`the batch starts below offset ${minOffset}, which was there before`, where);
  }
  const { baseOffset = batch.lastOffset } = options;
  if (deep && batch.lastOffset - baseOffset > MAX_OFFSET_SPAN) {
    yield problem(`the batch is out of reach of indexes from offset ${baseOffset}`, where);
  }
  if (!deep && !options.records) return;
  try {
    yield* dumpRecords(batch, where, options);
  } catch (error) {
    if (!(error instanceof MalformedBytes)) throw error;
    yield problem(`the records cannot be read: ${error.message}`, where);
  }
}

function* dumpRecords(
  batch: RecordBatch,
  where: Readonly<Record<string, unknown>>,
  options: SegmentDumpOptions,
): DumpRows {
  let expected = batch.baseOffset;
  for (const record of decodeRecords(batch, options.compression, MAX_DECOMPRESSED_BYTES)) {
    if (options.deep && (record.offset < expected || record.offset > batch.lastOffset)) {
      const bounds = `${expected} to ${batch.lastOffset}`;
      yield problem(`a record has offset ${record.offset}, outside ${bounds}`, where);
    }
    expected = record.offset + 1;
    const contents = contentsOf(batch, record, options.decoder);
    if (options.records)
      yield row('record', { ...recordFields(batch, record), ...contents.fields });
    if (contents.problem !== undefined) {
      yield problem(contents.problem, { position: where.position, offset: record.offset });
    }
  }
}

function batchFields(
  batch: RecordBatch,
  position: number,
  isValid: boolean | undefined,
): Readonly<Record<string, unknown>> {
  return {
    baseOffset: batch.baseOffset,
    lastOffset: batch.lastOffset,
    count: batch.count,
    position,
    size: batch.sizeInBytes,
    partitionLeaderEpoch: batch.partitionLeaderEpoch,
    producerId: batch.producerId,
    producerEpoch: batch.producerEpoch,
    baseSequence: batch.baseSequence,
    lastSequence: batch.lastSequence,
    isTransactional: batch.isTransactional,
    isControl: batch.isControl,
    timestampType: batch.isLogAppendTime ? 'LogAppendTime' : 'CreateTime',
    maxTimestamp: batch.maxTimestamp,
    ...(batch.hasDeleteHorizon ? { deleteHorizonMs: batch.baseTimestamp } : {}),
    compression: batch.compressionType ?? 'unknown',
    crc: batch.crc,
    ...(isValid === undefined ? {} : { isValid }),
  };
}

function recordFields(
  batch: RecordBatch,
  record: DecodedRecord,
): Readonly<Record<string, unknown>> {
  const { offset, timestamp } = record;
  if (batch.baseSequence === NO_SEQUENCE) return { offset, timestamp };
  const sequence = incrementSequence(batch.baseSequence, offset - batch.baseOffset);
  return { offset, timestamp, sequence };
}

interface Contents {
  readonly fields: Readonly<Record<string, unknown>>;
  readonly problem?: string;
}

/** Key, value and headers, understood where somebody understands them. */
function contentsOf(
  batch: RecordBatch,
  record: DecodedRecord,
  decoder: RecordDecoder | undefined,
): Contents {
  const { key, value } = record;
  const headers = record.headers.length === 0 ? {} : { headers: record.headers };
  const raw = { key, value, ...headers };
  try {
    if (batch.isControl) return { fields: controlFields(record) ?? raw };
    if (decoder === undefined) return { fields: raw };
    return { fields: { ...decoder(key, value), ...headers } };
  } catch (error) {
    if (!(error instanceof MalformedBytes)) throw error;
    const what = batch.isControl ? 'control record' : 'record';
    return { fields: raw, problem: `the ${what} cannot be understood: ${error.message}` };
  }
}

const KRAFT_RECORDS: ReadonlyMap<number, Message> = new Map<number, Message>([
  [ControlRecordType.leaderChange, LeaderChangeMessage],
  [ControlRecordType.snapshotHeader, SnapshotHeaderRecord],
  [ControlRecordType.snapshotFooter, SnapshotFooterRecord],
  [ControlRecordType.kraftVersion, KRaftVersionRecord],
  [ControlRecordType.kraftVoters, VotersRecord],
]);

function controlFields(record: DecodedRecord): Readonly<Record<string, unknown>> | undefined {
  const type = controlRecordType(record);
  const marker = parseTransactionMarker(record);
  if (marker !== undefined) {
    const endTxnMarker = marker.commit ? 'COMMIT' : 'ABORT';
    return { endTxnMarker, coordinatorEpoch: marker.coordinatorEpoch };
  }
  const schema = KRAFT_RECORDS.get(type ?? -1);
  if (schema === undefined || record.value === null) return undefined;
  // All of them begin with their version.
  const version = new ByteReader(record.value).int16();
  if (!inVersions(schema.versions, version)) return undefined;
  const fields: unknown = codec(schema, version).read(new ByteReader(record.value));
  return { controlRecord: schema.name, value: fields };
}
