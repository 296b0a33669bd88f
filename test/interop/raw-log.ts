/**
 * Reads a partition's record batches as bytes, through a consumer Fetch, and parses their headers.
 *
 * Shares no code with src/: it is one side of the judgement. Batch layout (v2), big-endian:
 *
 *     0 baseOffset i64 · 8 length i32 · 12 leaderEpoch i32 · 16 magic i8 · 17 crc u32 (of 21..)
 *     21 attributes i16 · 23 lastOffsetDelta i32 · 27 baseTimestamp i64 · 35 maxTimestamp i64
 *     43 producerId i64 · 51 producerEpoch i16 · 53 baseSequence i32 · 57 count i32 · 61 records
 */
import { crc32c } from '@node-rs/crc32';
import { type ClusterMetadata, RawClient } from './raw-client.ts';

const LOG_OVERHEAD = 12;
const HEADER_BYTES = 61;
const MAX_FETCHES_WITHOUT_PROGRESS = 50;

/** A record batch: its header fields, and the bytes of its records as they are stored. */
export interface RawBatch {
  readonly baseOffset: bigint;
  readonly lastOffset: bigint;
  readonly leaderEpoch: number;
  readonly magic: number;
  readonly crcIsValid: boolean;
  readonly attributes: number;
  readonly lastOffsetDelta: number;
  readonly baseTimestamp: bigint;
  readonly maxTimestamp: bigint;
  readonly producerId: bigint;
  readonly producerEpoch: number;
  readonly baseSequence: number;
  readonly count: number;
  readonly records: Buffer;
}

/** A partition as a consumer can know it. `end` is the high watermark. */
export interface RawPartition {
  readonly logStart: bigint;
  readonly lastStable: bigint;
  readonly end: bigint;
  readonly batches: readonly RawBatch[];
}

/** A topic with all its batches. */
export interface RawTopic {
  readonly topicId: string;
  readonly partitions: readonly RawPartition[];
}

/** Parses the complete batches at the start of `buffer`; throws on anything but magic 2. */
export function parseBatches(buffer: Buffer): RawBatch[] {
  const batches: RawBatch[] = [];
  let position = 0;
  while (position + LOG_OVERHEAD <= buffer.length) {
    const size = LOG_OVERHEAD + buffer.readInt32BE(position + 8);
    if (position + size > buffer.length) break;
    const batch = buffer.subarray(position, position + size);
    const magic = batch.readInt8(16);
    if (magic !== 2) throw new Error(`batch with magic ${magic}`);
    const baseOffset = batch.readBigInt64BE(0);
    const lastOffsetDelta = batch.readInt32BE(23);
    batches.push({
      baseOffset,
      lastOffset: baseOffset + BigInt(lastOffsetDelta),
      leaderEpoch: batch.readInt32BE(12),
      magic,
      crcIsValid: crc32c(batch.subarray(21)) === batch.readUInt32BE(17),
      attributes: batch.readInt16BE(21),
      lastOffsetDelta,
      baseTimestamp: batch.readBigInt64BE(27),
      maxTimestamp: batch.readBigInt64BE(35),
      producerId: batch.readBigInt64BE(43),
      producerEpoch: batch.readInt16BE(51),
      baseSequence: batch.readInt32BE(53),
      count: batch.readInt32BE(57),
      records: Buffer.from(batch.subarray(HEADER_BYTES)),
    });
    position += size;
  }
  return batches;
}

/** The batches from `from` up to (not including) `end`, as far as there are any. */
async function readBatches(
  client: RawClient,
  topic: string,
  partition: number,
  from: bigint,
  end: bigint,
): Promise<RawBatch[]> {
  const batches: RawBatch[] = [];
  let next = from;
  let idle = 0;
  while (next < end) {
    const answer = await client.fetch(topic, partition, next);
    if (answer.error !== 0) throw new Error(`Fetch ${topic}-${partition}: error ${answer.error}`);
    const fetched = parseBatches(answer.records).filter((batch) => batch.lastOffset >= next);
    const last = fetched.at(-1);
    if (last !== undefined) {
      batches.push(...fetched);
      next = last.lastOffset + 1n;
      idle = 0;
    } else if (answer.highWatermark >= end) {
      break; // the log ends in an offset gap
    } else if (++idle > MAX_FETCHES_WITHOUT_PROGRESS) {
      throw new Error(`${topic}-${partition} does not reach ${end}, stays at ${next}`);
    }
  }
  return batches.filter((batch) => batch.baseOffset < end);
}

async function connectFirst(bootstrap: string): Promise<RawClient> {
  let lastError: unknown;
  for (const address of bootstrap.split(',')) {
    const [host, port] = address.split(':');
    try {
      return await RawClient.connect(host ?? '', Number(port));
    } catch (error) {
      lastError = error;
    }
  }
  throw lastError;
}

/** Metadata of one topic, from the first bootstrap address that answers. */
export async function topicMetadata(
  bootstrap: string,
  topic: string,
): Promise<ClusterMetadata & { readonly topic: ClusterMetadata['topics'][number] }> {
  await using client = await connectFirst(bootstrap);
  const metadata = await client.metadata([topic]);
  const found = metadata.topics[0];
  if (found === undefined || found.error !== 0) {
    throw new Error(`Metadata of ${topic}: error ${found?.error}`);
  }
  return { ...metadata, topic: found };
}

/** Reads all of a topic, each partition from its leader. */
export async function readTopic(bootstrap: string, topic: string): Promise<RawTopic> {
  const metadata = await topicMetadata(bootstrap, topic);
  const partitions: RawPartition[] = [];
  const inOrder = [...metadata.topic.partitions].sort((a, b) => a.partition - b.partition);
  for (const { partition, leader } of inOrder) {
    const broker = metadata.brokers.find(({ id }) => id === leader);
    if (broker === undefined) throw new Error(`${topic}-${partition} has no leader`);
    await using client = await RawClient.connect(broker.host, broker.port);
    const logStart = await client.listOffset(topic, partition, -2);
    const lastStable = await client.listOffset(topic, partition, -1, 'read_committed');
    const end = await client.listOffset(topic, partition, -1);
    const batches = await readBatches(client, topic, partition, logStart, end);
    partitions.push({ logStart, lastStable, end, batches });
  }
  return { topicId: metadata.topic.topicId, partitions };
}
