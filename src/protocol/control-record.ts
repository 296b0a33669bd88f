/**
 * Control records: the markers that end transactions, and those of a KRaft log.
 *
 * The key of a control record is an int16 version (0) and an int16 type; the value's schema follows
 * from the type (`messages/end-txn-marker.ts`, `messages/control-records.ts`) and is preceded by an
 * int16 version, too, in transaction markers.
 */
import { ByteReader, ByteWriter } from '../base/bytes.ts';
import { codec } from './codec.ts';
import { EndTxnMarker } from './messages/end-txn-marker.ts';
import { buildRecordBatch, type DecodedRecord } from './record.ts';

/** Types of control records. */
export const ControlRecordType = Object.freeze({
  abort: 0,
  commit: 1,
  leaderChange: 2,
  snapshotHeader: 3,
  snapshotFooter: 4,
  kraftVersion: 5,
  kraftVoters: 6,
});

/** Bytes of a control record's key. */
export const CONTROL_KEY_BYTES = 4;

/** The key of a control record. */
export function controlRecordKey(type: number): Uint8Array {
  const writer = new ByteWriter(CONTROL_KEY_BYTES);
  writer.int16(0);
  writer.int16(type);
  return writer.toBytes();
}

/** The type in a control record's key; undefined for a record without a key. */
export function controlRecordType(record: Pick<DecodedRecord, 'key'>): number | undefined {
  if (record.key === null) return undefined;
  const reader = new ByteReader(record.key);
  reader.int16();
  return reader.int16();
}

/** The end of a transaction in one partition. */
export interface TransactionMarker {
  readonly commit: boolean;
  readonly coordinatorEpoch: number;
}

/** A transaction marker as a batch of its own. */
export interface NewTransactionMarker extends TransactionMarker {
  readonly producerId: bigint;
  readonly producerEpoch: number;
  /** Milliseconds since 1970. */
  readonly timestamp: bigint | number;
  readonly baseOffset?: number;
  /**
   * Beyond `baseOffset` only for the stand-in of an aborted batch (rule P3); the record is there,
   * since kafkajs goes on behind the last record, not behind the last offset of the batch.
   */
  readonly lastOffset?: number;
  readonly partitionLeaderEpoch?: number;
}

const MARKER_VERSION = 0;

/** The batch that ends a transaction. */
export function buildTransactionMarker(marker: NewTransactionMarker): Uint8Array {
  const { commit, coordinatorEpoch, timestamp, ...batch } = marker;
  const writer = new ByteWriter();
  writer.int16(MARKER_VERSION);
  codec(EndTxnMarker, MARKER_VERSION).write(writer, { coordinatorEpoch });
  const key = controlRecordKey(commit ? ControlRecordType.commit : ControlRecordType.abort);
  const at = marker.lastOffset ?? marker.baseOffset;
  const offset = at === undefined ? {} : { offset: at };
  const records = [{ key, value: writer.toBytes(), timestamp, ...offset }];
  return buildRecordBatch({ ...batch, records, isTransactional: true, isControl: true });
}

/** The marker in a control record; undefined for other control records. */
export function parseTransactionMarker(record: DecodedRecord): TransactionMarker | undefined {
  const type = controlRecordType(record);
  const isMarker = type === ControlRecordType.abort || type === ControlRecordType.commit;
  if (!isMarker || record.value === null) return undefined;
  const reader = new ByteReader(record.value);
  // Versions to come may add fields behind ours, never change them.
  reader.int16();
  const { coordinatorEpoch } = codec(EndTxnMarker, MARKER_VERSION).read(reader);
  return { commit: type === ControlRecordType.commit, coordinatorEpoch };
}
