/**
 * Fakes for the tests of this folder: connections driven by hand, a metadata image, a controller.
 */
import { uuidFromBytes } from '../../src/base/uuid.ts';
import type { Connection, ConnectionOwner, Listener, Network } from '../../src/io/runtime.ts';
import type { ControllerPort } from '../../src/metadata/controller-port.ts';
import { emptyImage, type MetadataImage } from '../../src/metadata/image.ts';
import { applyRecords } from '../../src/metadata/image-delta.ts';
import { type MetadataRecord, metadataRecord } from '../../src/metadata/record-framing.ts';
import { placeRecords } from '../../src/metadata/transaction-buffer.ts';

export { fakeRuntime, ManualClock, settle } from '../replication/fakes.ts';

/** A connection whose peer is the test. */
export class FakeConnection implements Connection {
  readonly remoteAddress = '192.0.2.7';
  readonly localPort = 9092;
  /** All that was written, each write as one piece. */
  readonly written: Buffer[] = [];
  /** Told when a response has left. */
  readonly unsent: (() => void)[] = [];
  paused = false;
  closedByOwner = false;
  /** What `write` answers. */
  accepts = true;
  #owner: ConnectionOwner | undefined;

  get owner(): ConnectionOwner {
    if (this.#owner === undefined) throw new Error('not started');
    return this.#owner;
  }

  start(owner: ConnectionOwner): void {
    this.#owner = owner;
  }

  write(chunks: readonly Uint8Array[], sent?: () => void): boolean {
    this.written.push(Buffer.concat(chunks));
    if (sent !== undefined) this.unsent.push(sent);
    return this.accepts;
  }

  pause(): void {
    this.paused = true;
  }

  resume(): void {
    this.paused = false;
  }

  close(): void {
    this.closedByOwner = true;
  }

  queuedBytes(): number {
    return 0;
  }

  /** Lets the owner receive `bytes`, in as many reads as its buffers ask for. */
  receive(bytes: Uint8Array): void {
    for (let at = 0; at < bytes.length && !this.closedByOwner; ) {
      const target = this.owner.receiveBuffer();
      const length = Math.min(target.length, bytes.length - at);
      target.set(bytes.subarray(at, at + length));
      this.owner.received(length);
      at += length;
    }
  }
}

/** A network on which the test connects by hand. */
export class FakeNetwork implements Network {
  #accept: (connection: Connection) => void = () => {};

  listen(host: string, _port: number, onConnection: (c: Connection) => void): Promise<Listener> {
    this.#accept = onConnection;
    return Promise.resolve({ host, port: 12_345, close: () => Promise.resolve() });
  }

  connect(): never {
    throw new Error('not part of this test');
  }

  open(): FakeConnection {
    const connection = new FakeConnection();
    this.#accept(connection);
    return connection;
  }
}

/** `payload` with its length in front. */
export function framed(payload: Uint8Array): Buffer {
  const frame = Buffer.alloc(4 + payload.length);
  frame.writeInt32BE(payload.length);
  frame.set(payload, 4);
  return frame;
}

/** A uuid that ends in `n`. */
export function uuidOf(n: number): string & ReturnType<typeof uuidFromBytes> {
  const bytes = new Uint8Array(16);
  bytes[15] = n;
  return uuidFromBytes(bytes);
}

/** An image made by these records. */
export function imageOf(records: readonly MetadataRecord[]): MetadataImage {
  const lastOffset = records.length - 1;
  const empty = emptyImage('test-cluster');
  return applyRecords(empty, placeRecords(records, lastOffset), lastOffset, 1).image;
}

/** Records of a live broker with one PLAINTEXT listener. */
export function brokerRecord(id: number, fenced = false): MetadataRecord {
  return metadataRecord('RegisterBrokerRecord', {
    brokerId: id,
    incarnationId: uuidOf(100 + id),
    brokerEpoch: id,
    endPoints: [{ name: 'PLAINTEXT', host: `host${id}`, port: 9000 + id, securityProtocol: 0 }],
    features: [],
    rack: `rack${id}`,
    fenced,
  });
}

/** Records of a topic whose partitions are all led by `leader` (−1: by nobody). */
export function topicRecords(n: number, name: string, count: number, leader = 1): MetadataRecord[] {
  const topicId = uuidOf(n);
  return [
    metadataRecord('TopicRecord', { name, topicId }),
    ...Array.from({ length: count }, (_, partitionId) =>
      metadataRecord('PartitionRecord', {
        partitionId,
        topicId,
        replicas: [1, 2],
        isr: [1],
        removingReplicas: [],
        addingReplicas: [],
        directories: [],
        leader,
        leaderEpoch: 5,
        partitionEpoch: 6,
      }),
    ),
  ];
}

/** A config override. */
export function configRecord(type: number, name: string, key: string, value: string) {
  return metadataRecord('ConfigRecord', {
    resourceType: type,
    resourceName: name,
    name: key,
    value,
  });
}

/** A controller of which only `methods` may be called. */
export function fakeController(methods: Partial<ControllerPort>): ControllerPort {
  return new Proxy(methods as ControllerPort, {
    get: (target, name) => {
      const method = target[name as keyof ControllerPort];
      if (method === undefined) throw new Error(`controller.${String(name)}: not in this test`);
      return method;
    },
  });
}
