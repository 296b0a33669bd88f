/**
 * A minimal Kafka client over a socket: Metadata, ListOffsets, OffsetForLeaderEpoch and Fetch,
 * answering raw bytes; and CreateTopics with a given topic id, which twinlog alone has.
 *
 * The interop tests judge twinlog with it, so it shares no code with src/. Encoded by hand for one
 * version of each API that Apache Kafka 4 and twinlog both serve: Metadata 12, ListOffsets 4 and 8,
 * OffsetForLeaderEpoch 3, Fetch 11 (by topic name, consumer); CreateTopics 8. Requests on one
 * connection go one at a time.
 */
import { connect, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';

const REQUEST_TIMEOUT_MS = 15_000;
const NOT_LEADER_OR_FOLLOWER = 6;
/** How often, and how long between, a partition is asked that has no leader yet. */
const MAX_LEADER_WAITS = 100;
const LEADER_WAIT_MS = 100;
const MAX_RESPONSE_BYTES = 64 * 1024 * 1024;

/** Appends big-endian fields. */
class Writer {
  readonly #parts: Buffer[] = [];
  int8(value: number): this {
    return this.#push(1, (buffer) => buffer.writeInt8(value));
  }
  int16(value: number): this {
    return this.#push(2, (buffer) => buffer.writeInt16BE(value));
  }
  int32(value: number): this {
    return this.#push(4, (buffer) => buffer.writeInt32BE(value));
  }
  int64(value: bigint): this {
    return this.#push(8, (buffer) => buffer.writeBigInt64BE(value));
  }
  string(value: string): this {
    return this.int16(Buffer.byteLength(value)).bytes(Buffer.from(value));
  }
  compactString(value: string): this {
    return this.varint(Buffer.byteLength(value) + 1).bytes(Buffer.from(value));
  }
  varint(value: number): this {
    const bytes: number[] = [];
    let rest = value;
    for (; rest > 0x7f; rest >>>= 7) bytes.push((rest & 0x7f) | 0x80);
    return this.bytes(Buffer.from([...bytes, rest]));
  }
  bytes(value: Buffer): this {
    this.#parts.push(value);
    return this;
  }
  done(): Buffer {
    return Buffer.concat(this.#parts);
  }
  #push(size: number, write: (buffer: Buffer) => void): this {
    const buffer = Buffer.alloc(size);
    write(buffer);
    this.#parts.push(buffer);
    return this;
  }
}

/** Reads big-endian and compact fields; throws RangeError past the end. */
class Reader {
  readonly buffer: Buffer;
  position = 0;
  constructor(buffer: Buffer) {
    this.buffer = buffer;
  }
  int8(): number {
    return this.buffer.readInt8(this.#advance(1));
  }
  int16(): number {
    return this.buffer.readInt16BE(this.#advance(2));
  }
  int32(): number {
    return this.buffer.readInt32BE(this.#advance(4));
  }
  int64(): bigint {
    return this.buffer.readBigInt64BE(this.#advance(8));
  }
  varint(): number {
    let result = 0;
    for (let shift = 0; ; shift += 7) {
      const byte = this.buffer.readUInt8(this.#advance(1));
      result += (byte & 0x7f) * 2 ** shift;
      if (byte < 0x80) return result;
    }
  }
  bytes(length: number): Buffer {
    const start = this.#advance(length);
    return this.buffer.subarray(start, start + length);
  }
  string(): string | null {
    const length = this.int16();
    return length < 0 ? null : this.bytes(length).toString();
  }
  compactString(): string | null {
    const length = this.varint() - 1;
    return length < 0 ? null : this.bytes(length).toString();
  }
  array<T>(length: number, read: () => T): T[] {
    return Array.from({ length: Math.max(length, 0) }, read);
  }
  tags(): void {
    for (let left = this.varint(); left > 0; left--) {
      this.varint();
      this.bytes(this.varint());
    }
  }
  #advance(length: number): number {
    const start = this.position;
    this.position += length;
    return start;
  }
}

/** A partition as Metadata tells it. */
export interface PartitionMetadata {
  readonly partition: number;
  readonly error: number;
  readonly leader: number;
  readonly leaderEpoch: number;
  readonly replicas: readonly number[];
  readonly isr: readonly number[];
}

/** A topic as Metadata tells it; `topicId` as 32 hexadecimal digits. */
export interface TopicMetadata {
  readonly error: number;
  readonly name: string | null;
  readonly topicId: string;
  readonly partitions: readonly PartitionMetadata[];
}

/** A Metadata response. */
export interface ClusterMetadata {
  readonly brokers: readonly {
    readonly id: number;
    readonly host: string;
    readonly port: number;
  }[];
  readonly clusterId: string | null;
  readonly topics: readonly TopicMetadata[];
}

/** One partition of a Fetch response; `records` may end in an incomplete batch. */
export interface FetchedPartition {
  readonly error: number;
  readonly highWatermark: bigint;
  readonly lastStableOffset: bigint;
  readonly logStartOffset: bigint;
  readonly aborted: readonly { readonly producerId: bigint; readonly firstOffset: bigint }[];
  readonly records: Buffer;
}

/** What ListOffsets found: −1 where it found nothing. */
export interface FoundOffset {
  readonly error: number;
  readonly timestamp: bigint;
  readonly offset: bigint;
  readonly leaderEpoch: number;
}

/** Where a leader epoch ends. */
export interface EpochEnd {
  readonly error: number;
  readonly leaderEpoch: number;
  readonly endOffset: bigint;
}

export type Isolation = 'read_uncommitted' | 'read_committed';

const isolationLevel = (isolation: Isolation): number => (isolation === 'read_committed' ? 1 : 0);

function readPartitionMetadata(reader: Reader): PartitionMetadata {
  const error = reader.int16();
  const partition = reader.int32();
  const leader = reader.int32();
  const leaderEpoch = reader.int32();
  const replicas = reader.array(reader.varint() - 1, () => reader.int32());
  const isr = reader.array(reader.varint() - 1, () => reader.int32());
  reader.array(reader.varint() - 1, () => reader.int32()); // offline replicas
  reader.tags();
  return { partition, error, leader, leaderEpoch, replicas, isr };
}

function readTopicMetadata(reader: Reader): TopicMetadata {
  const error = reader.int16();
  const name = reader.compactString();
  const topicId = reader.bytes(16).toString('hex');
  reader.int8(); // is internal
  const partitions = reader.array(reader.varint() - 1, () => readPartitionMetadata(reader));
  reader.int32(); // authorized operations
  reader.tags();
  return { error, name, topicId, partitions };
}

/** One connection. `await using` closes it. */
export class RawClient {
  readonly #socket: Socket;
  readonly #clientId: string;
  #correlationId = 0;
  #received: Buffer[] = [];
  #receivedBytes = 0;
  #waiter: { resolve(frame: Buffer): void; reject(error: Error): void } | undefined;

  private constructor(socket: Socket, clientId: string) {
    this.#socket = socket;
    this.#clientId = clientId;
    socket.on('data', (chunk) => this.#onData(chunk));
    socket.on('error', (error) => this.#fail(error));
    socket.on('close', () => this.#fail(new Error('connection closed')));
  }

  static connect(
    host: string,
    port: number,
    timeoutMs = 5_000,
    clientId = 'raw',
  ): Promise<RawClient> {
    return new Promise((resolve, reject) => {
      const socket = connect({ host, port, noDelay: true });
      const timer = setTimeout(() => socket.destroy(new Error('connect timed out')), timeoutMs);
      socket.once('error', (error) => {
        clearTimeout(timer);
        reject(error);
      });
      socket.once('connect', () => {
        clearTimeout(timer);
        socket.removeAllListeners('error');
        resolve(new RawClient(socket, clientId));
      });
    });
  }

  close(): void {
    this.#socket.destroy();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.close();
  }

  #fail(error: Error): void {
    this.#waiter?.reject(error);
    this.#waiter = undefined;
  }

  #onData(chunk: Buffer): void {
    this.#received.push(chunk);
    this.#receivedBytes += chunk.length;
    if (this.#receivedBytes < 4) return;
    let head = this.#received[0];
    if (head === undefined || head.length < 4) {
      head = Buffer.concat(this.#received);
      this.#received = [head];
    }
    const length = head.readInt32BE(0);
    if (length < 0 || length > MAX_RESPONSE_BYTES) {
      this.#socket.destroy(new Error(`response of ${length} bytes`));
    } else if (this.#receivedBytes >= 4 + length) {
      const all = Buffer.concat(this.#received);
      this.#received = [all.subarray(4 + length)];
      this.#receivedBytes = all.length - 4 - length;
      this.#waiter?.resolve(all.subarray(4, 4 + length));
      this.#waiter = undefined;
    }
  }

  /** Sends one request and returns a reader behind the response header. */
  async #request(key: number, version: number, flexible: boolean, body: Buffer): Promise<Reader> {
    if (this.#waiter !== undefined) throw new Error('one request at a time');
    const correlationId = ++this.#correlationId;
    const header = new Writer().int16(key).int16(version).int32(correlationId);
    header.string(this.#clientId);
    if (flexible) header.int8(0);
    const frame = Buffer.concat([header.done(), body]);
    const size = new Writer().int32(frame.length).done();
    let timer: NodeJS.Timeout | undefined;
    const response = await new Promise<Buffer>((resolve, reject) => {
      this.#waiter = { resolve, reject };
      timer = setTimeout(
        () => this.#socket.destroy(new Error(`API ${key} not answered`)),
        REQUEST_TIMEOUT_MS,
      );
      this.#socket.write(Buffer.concat([size, frame]));
    }).finally(() => clearTimeout(timer));
    const reader = new Reader(response);
    const answered = reader.int32();
    if (answered !== correlationId) throw new Error(`correlation id ${answered}`);
    if (flexible) reader.tags();
    return reader;
  }

  /** Metadata of these topics (none: the brokers alone). Never creates a topic. */
  async metadata(topics: readonly string[]): Promise<ClusterMetadata> {
    const body = new Writer().int8(topics.length + 1);
    for (const topic of topics) {
      const name = Buffer.from(topic);
      if (name.length > 126) throw new Error('topic name too long for this client');
      body
        .bytes(Buffer.alloc(16))
        .int8(name.length + 1)
        .bytes(name)
        .int8(0);
    }
    body.int8(0).int8(0).int8(0);
    const reader = await this.#request(3, 12, true, body.done());
    reader.int32(); // throttle time
    const brokers = reader.array(reader.varint() - 1, () => {
      const id = reader.int32();
      const host = reader.compactString() ?? '';
      const port = reader.int32();
      reader.compactString(); // rack
      reader.tags();
      return { id, host, port };
    });
    const clusterId = reader.compactString();
    reader.int32(); // controller id
    const answered = reader.array(reader.varint() - 1, () => readTopicMetadata(reader));
    return { brokers, clusterId, topics: answered };
  }

  /** The offset of `timestamp` (-2 earliest, -1 latest: high watermark or last stable offset). */
  async listOffset(
    topic: string,
    partition: number,
    timestamp: -1 | -2,
    isolation: Isolation = 'read_uncommitted',
  ): Promise<bigint> {
    const body = new Writer().int32(-1).int8(isolationLevel(isolation)).int32(1).string(topic);
    body.int32(1).int32(partition).int32(-1).int64(BigInt(timestamp));
    const question = body.done();
    // A broker that has just started does not lead its partitions yet.
    for (let attempt = 1; ; attempt++) {
      const reader = await this.#request(2, 4, false, question);
      reader.int32(); // throttle time
      reader.int32(); // one topic
      reader.string();
      reader.int32(); // one partition
      reader.int32();
      const error = reader.int16();
      reader.int64(); // timestamp
      const offset = reader.int64();
      if (error === 0) return offset;
      const mayLeadSoon = error === NOT_LEADER_OR_FOLLOWER && attempt < MAX_LEADER_WAITS;
      if (!mayLeadSoon) throw new Error(`ListOffsets ${topic}-${partition}: error ${error}`);
      await sleep(LEADER_WAIT_MS);
    }
  }

  /** The first record at or behind `timestamp`, or one of the special timestamps (−1 … −4). */
  async findOffset(
    topic: string,
    partition: number,
    timestamp: bigint,
    isolation: Isolation = 'read_uncommitted',
  ): Promise<FoundOffset> {
    const body = new Writer().int32(-1).int8(isolationLevel(isolation)).varint(2);
    body.compactString(topic).varint(2);
    body.int32(partition).int32(-1).int64(timestamp).int8(0).int8(0).int8(0);
    const reader = await this.#request(2, 8, true, body.done());
    reader.int32(); // throttle time
    reader.varint(); // one topic
    reader.compactString();
    reader.varint(); // one partition
    reader.int32();
    const error = reader.int16();
    const found = { error, timestamp: reader.int64(), offset: reader.int64() };
    return { ...found, leaderEpoch: reader.int32() };
  }

  /** Where `leaderEpoch`, or the largest known epoch below it, ends. */
  async offsetForLeaderEpoch(
    topic: string,
    partition: number,
    leaderEpoch: number,
  ): Promise<EpochEnd> {
    const body = new Writer().int32(-1).int32(1).string(topic);
    body.int32(1).int32(partition).int32(-1).int32(leaderEpoch);
    const reader = await this.#request(23, 3, false, body.done());
    reader.int32(); // throttle time
    reader.int32(); // one topic
    reader.string();
    reader.int32(); // one partition
    const error = reader.int16();
    reader.int32();
    return { error, leaderEpoch: reader.int32(), endOffset: reader.int64() };
  }

  /** Creates a topic with a given id (32 hexadecimal digits) on twinlog. */
  async createTopicWithId(
    topic: string,
    topicId: string,
    partitions: number,
    configs: Readonly<Record<string, string>> = {},
  ): Promise<void> {
    const body = new Writer().varint(2).compactString(topic).int32(partitions).int16(-1).varint(1);
    const settings = Object.entries(configs);
    body.varint(settings.length + 1);
    for (const [name, value] of settings) body.compactString(name).compactString(value).int8(0);
    body.int8(1).bytes(Buffer.from(topicId, 'hex')).int8(0);
    body.int8(0).int32(REQUEST_TIMEOUT_MS).int8(0).int8(0);
    const reader = await this.#request(19, 8, true, body.done());
    reader.int32(); // throttle time
    reader.varint(); // one topic
    reader.compactString();
    reader.bytes(16);
    const error = reader.int16();
    if (error !== 0) throw new Error(`${topic}: error ${error}: ${reader.compactString()}`);
  }

  /** One Fetch from `offset`, without a session. */
  async fetch(
    topic: string,
    partition: number,
    offset: bigint,
    options: { isolation?: Isolation; maxBytes?: number; maxWaitMs?: number } = {},
  ): Promise<FetchedPartition> {
    const maxBytes = options.maxBytes ?? 8 * 1024 * 1024;
    const level = isolationLevel(options.isolation ?? 'read_uncommitted');
    const body = new Writer()
      .int32(-1)
      .int32(options.maxWaitMs ?? 100)
      .int32(1)
      .int32(maxBytes);
    body.int8(level).int32(0).int32(-1);
    body.int32(1).string(topic).int32(1);
    body.int32(partition).int32(-1).int64(offset).int64(-1n).int32(maxBytes);
    body.int32(0).string('');
    const reader = await this.#request(1, 11, false, body.done());
    reader.int32(); // throttle time
    const topLevel = reader.int16();
    if (topLevel !== 0) throw new Error(`Fetch: error ${topLevel}`);
    reader.int32(); // session id
    reader.int32(); // one topic
    reader.string();
    reader.int32(); // one partition
    reader.int32();
    const error = reader.int16();
    const highWatermark = reader.int64();
    const lastStableOffset = reader.int64();
    const logStartOffset = reader.int64();
    const aborted = reader.array(reader.int32(), () => ({
      producerId: reader.int64(),
      firstOffset: reader.int64(),
    }));
    reader.int32(); // preferred read replica
    const records = reader.bytes(Math.max(reader.int32(), 0));
    return { error, highWatermark, lastStableOffset, logStartOffset, aborted, records };
  }
}
