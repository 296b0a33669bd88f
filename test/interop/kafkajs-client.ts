/**
 * kafkajs as a client under test, with snappy, lz4 and zstd registered.
 *
 * It can only read through a consumer group, and never says that it reached an end: the end is five
 * answered fetches per broker, after the last batch, that brought nothing.
 */
import { randomUUID } from 'node:crypto';
import { zstdCompressSync, zstdDecompressSync } from 'node:zlib';
import kafkajs from 'kafkajs';
import { compressFrameSync, decompressFrameSync } from 'lz4-napi';
import { compressSync, uncompressSync } from 'snappy';
import type { Attempt, ClientRecord, ClientUnderTest, ReadOptions } from './client.ts';
import type { Isolation } from './raw-client.ts';

const { CompressionCodecs, CompressionTypes, Kafka, logLevel } = kafkajs;

const READ_LIMIT_MS = 50_000;
const QUIET_FETCHES = 5;
const XERIAL_MAGIC = Buffer.from([0x82, 0x53, 0x4e, 0x41, 0x50, 0x50, 0x59, 0]);
const XERIAL_HEADER_BYTES = 16;

/** Snappy as Java writes it (length-prefixed blocks behind a magic), or one bare block. */
function decompressSnappy(buffer: Buffer): Buffer {
  if (!buffer.subarray(0, 8).equals(XERIAL_MAGIC)) return uncompressSync(buffer) as Buffer;
  const blocks: Buffer[] = [];
  for (let position = XERIAL_HEADER_BYTES; position < buffer.length; ) {
    const length = buffer.readUInt32BE(position);
    const block = buffer.subarray(position + 4, position + 4 + length);
    blocks.push(uncompressSync(block) as Buffer);
    position += 4 + length;
  }
  return Buffer.concat(blocks);
}

interface Encoder {
  readonly buffer: Buffer;
}

function codec(compress: (bytes: Buffer) => Buffer, decompress: (bytes: Buffer) => Buffer) {
  return () => ({
    compress: async (encoder: Encoder) => compress(encoder.buffer),
    decompress: async (buffer: Buffer) => decompress(buffer),
  });
}

CompressionCodecs[CompressionTypes.Snappy] = codec(
  (bytes) => compressSync(bytes),
  decompressSnappy,
);
CompressionCodecs[CompressionTypes.LZ4] = codec(compressFrameSync, decompressFrameSync);
CompressionCodecs[CompressionTypes.ZSTD] = codec(
  (bytes) => zstdCompressSync(bytes),
  (bytes) => zstdDecompressSync(bytes),
);

function client(bootstrap: string): kafkajs.Kafka {
  return new Kafka({ brokers: bootstrap.split(','), logLevel: logLevel.NOTHING });
}

type KafkajsHeaders = kafkajs.IHeaders | undefined;

/** kafkajs keeps duplicates in an array under their name. */
function headerList(headers: KafkajsHeaders): [string, Buffer | null][] {
  return Object.entries(headers ?? {}).flatMap(([name, values]) => {
    const list = Array.isArray(values) ? values : [values];
    return list.map((value): [string, Buffer | null] => [
      name,
      value === undefined || value === null ? null : Buffer.from(value),
    ]);
  });
}

async function readAll(
  bootstrap: string,
  topic: string,
  isolation: Isolation,
  { maxBytes }: ReadOptions = {},
): Promise<ClientRecord[]> {
  const consumer = client(bootstrap).consumer({
    groupId: `kafkajs-${randomUUID()}`,
    readUncommitted: isolation === 'read_uncommitted',
    maxWaitTimeInMs: 100,
    ...(maxBytes === undefined ? {} : { maxBytesPerPartition: maxBytes }),
    retry: { retries: 3 },
  });
  const records: ClientRecord[] = [];
  const quiet = new Map<number, number>();
  const ended = Promise.withResolvers<void>();
  const timer = setTimeout(() => ended.reject(new Error('kafkajs: no end')), READ_LIMIT_MS);
  consumer.on(consumer.events.CRASH, (event) => ended.reject(event.payload.error));
  consumer.on(consumer.events.FETCH, ({ payload }) => {
    quiet.set(payload.nodeId, (quiet.get(payload.nodeId) ?? 0) + 1);
    if (Math.min(...quiet.values()) >= QUIET_FETCHES) ended.resolve();
  });
  // Also for batches of which nothing is handed out: aborted data, control batches.
  consumer.on(consumer.events.START_BATCH_PROCESS, () => {
    for (const node of quiet.keys()) quiet.set(node, 0);
  });
  try {
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    await consumer.run({
      autoCommit: false,
      eachBatch: async ({ batch }) => {
        for (const message of batch.messages) {
          records.push({
            partition: batch.partition,
            offset: Number(message.offset),
            timestamp: Number(message.timestamp),
            key: message.key,
            value: message.value,
            headers: headerList(message.headers),
          });
        }
      },
    });
    await ended.promise;
  } finally {
    clearTimeout(timer);
    await consumer.disconnect();
  }
  return records.sort((a, b) => a.partition - b.partition);
}

async function tryProduce(bootstrap: string, topic: string): Promise<Attempt> {
  const producer = client(bootstrap).producer({ allowAutoTopicCreation: false });
  let attempts = 0;
  producer.on(producer.events.REQUEST, ({ payload }) => {
    if (payload.apiName === 'Produce') attempts++;
  });
  await producer.connect();
  const start = performance.now();
  const elapsedMs = (): number => Math.round(performance.now() - start);
  try {
    const messages = [{ partition: 0, key: 'key', value: 'from kafkajs' }];
    const [answer] = await producer.send({ topic, messages });
    return { offset: Number(answer?.baseOffset), attempts, elapsedMs: elapsedMs() };
  } catch (error) {
    const { type, name, message } = error as { type?: string; name: string; message: string };
    return { error: type ?? name, message, attempts, elapsedMs: elapsedMs() };
  } finally {
    await producer.disconnect();
  }
}

/** kafkajs. */
export function kafkajsClient(): ClientUnderTest {
  return { name: 'kafkajs', keepsHeaderOrder: false, readAll, tryProduce };
}
