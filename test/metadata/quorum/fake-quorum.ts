/**
 * Controllers in memory behind a network, played frame by frame: who leads, what the log holds, who
 * is down. Fetches wait until there is something to say, as they do in Apache Kafka.
 */
import assert from 'node:assert/strict';
import type { ByteReader } from '../../../src/base/bytes.ts';
import { silentLogger } from '../../../src/base/logger.ts';
import { METADATA_TOPIC_ID } from '../../../src/base/uuid.ts';
import { nodeRuntime } from '../../../src/io/node/node-runtime.ts';
import type { CloseReason, Compression, Connection, Runtime } from '../../../src/io/runtime.ts';
import {
  encodeMetadataRecord,
  type MetadataRecord,
  metadataRecord,
} from '../../../src/metadata/record-framing.ts';
import { codec } from '../../../src/protocol/codec.ts';
import { encodeResponseFrame } from '../../../src/protocol/frame.ts';
import { FetchRequest, FetchResponse } from '../../../src/protocol/messages/01-fetch.ts';
import {
  FetchSnapshotRequest,
  FetchSnapshotResponse,
} from '../../../src/protocol/messages/59-fetch-snapshot.ts';
import {
  DescribeClusterRequest,
  DescribeClusterResponse,
} from '../../../src/protocol/messages/60-describe-cluster.ts';
import { buildRecordBatch } from '../../../src/protocol/record.ts';
import { RecordBatch } from '../../../src/protocol/record-batch.ts';
import type { RequestHeader } from '../../../src/protocol/request-header.ts';
import type { EncodableOf, Message, MessageOf } from '../../../src/protocol/schema.ts';
import { Peer } from '../../protocol/kafka-peer.ts';

export const NO_COMPRESSION: Compression = {
  compress: () => assert.fail('metadata is not compressed'),
  decompress: () => assert.fail('metadata is not compressed'),
};

/** A batch of configs of these names, or a control batch of one record. */
export function metadataBatch(
  baseOffset: number,
  partitionLeaderEpoch: number,
  names: readonly string[] | 'control',
): Buffer {
  const isControl = names === 'control';
  const records = (isControl ? ['-'] : names).map((name) => ({
    key: null,
    value: encodeMetadataRecord(
      metadataRecord('ConfigRecord', { resourceType: 4, resourceName: '', name, value: 'v' }),
    ),
    timestamp: 0,
  }));
  const options = { baseOffset, partitionLeaderEpoch, isControl, records };
  return Buffer.from(buildRecordBatch(options));
}

/** The names of such records. */
export function named(records: readonly MetadataRecord[]): string[] {
  return records.map((record) =>
    record.type === 'ConfigRecord' ? record.value.name : record.type,
  );
}

interface WaitingFetch {
  readonly nodeId: number;
  readonly request: FetchRequest;
  readonly answer: (response: EncodableOf<typeof FetchResponse>) => void;
}

type Serve = (value: unknown, nodeId: number) => unknown;

const APIS: [number, number, number][] = [
  [1, 4, 18],
  [18, 0, 4],
  [59, 0, 1],
  [60, 0, 2],
];

/** See the file header. */
export class FakeQuorum {
  readonly clusterId = 'test-cluster';
  readonly runtime: Runtime;
  leaderId = 1;
  epoch = 1;
  highWatermark = 0;
  /** What the leader has; each batch has its base offset and epoch. */
  batches: Buffer[] = [];
  snapshot: { endOffset: number; epoch: number; bytes: Buffer } | undefined;
  /** Bytes of the snapshot that one answer holds. */
  pieceBytes = 100;
  /** Epoch and end offset that a fetch is answered with once. */
  diverging: { epoch: number; endOffset: number } | undefined;
  /** `node API` of every request. */
  readonly asked: string[] = [];
  readonly fetched: FetchRequest[] = [];
  /** The nodes that were dialled, in order. */
  readonly dialled: number[] = [];
  /** Nodes that take connections and requests, and answer none but ApiVersions. */
  readonly hung = new Set<number>();
  /** Nobody has the right to ask anything. */
  isForbidden = false;
  /** Runs once, behind the first piece of a snapshot. */
  afterPiece: (() => void) | undefined;
  readonly #down = new Set<number>();
  readonly #peers = new Map<Peer, number>();
  readonly #served = new Map<number, { request: Message; response: Message; serve: Serve }>();
  #waiting: WaitingFetch[] = [];

  constructor(count = 3) {
    this.runtime = {
      ...nodeRuntime({ logger: silentLogger }),
      compression: NO_COMPRESSION,
      network: {
        listen: () => assert.fail('nobody listens here'),
        connect: (host) => Promise.resolve(this.#connect(host, count)),
      },
    };
  }

  /** The address of a controller. */
  static address(nodeId: number) {
    return { host: `c${nodeId}`, port: 9093 };
  }

  /** Answers an API; the function is told which node was asked. */
  serve<Q extends Message, R extends Message>(
    request: Q,
    response: R,
    serve: (value: MessageOf<Q>, nodeId: number) => EncodableOf<R>,
  ): void {
    this.#served.set(request.apiKey ?? -1, { request, response, serve: serve as Serve });
  }

  /** Ends a node's connections and refuses new ones. */
  stop(nodeId: number): void {
    this.#down.add(nodeId);
    this.#waiting = this.#waiting.filter((waiting) => waiting.nodeId !== nodeId);
    for (const [peer, id] of this.#peers) {
      if (id === nodeId) peer.end({ cause: 'ECONNRESET', message: 'stopped' });
    }
  }

  /** Another node leads from now on. */
  elect(nodeId: number): void {
    this.leaderId = nodeId;
    this.epoch++;
    this.kick();
  }

  /** Appends a batch and commits up to `highWatermark`. */
  append(batch: Buffer, highWatermark = this.highWatermark): void {
    this.batches.push(batch);
    this.highWatermark = highWatermark;
    this.kick();
  }

  /** Answers the fetches that wait, where there is something to say. */
  kick(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const each of waiting) this.#fetch(each);
  }

  #connect(host: string, count: number): Connection | CloseReason {
    const nodeId = Number(host.slice(1));
    this.dialled.push(nodeId);
    if (this.#down.has(nodeId) || nodeId > count) {
      return { cause: 'ECONNREFUSED', message: `${host} refuses` };
    }
    const peer = new Peer();
    const served = [...this.#served.keys()].map((key): [number, number, number] => [key, 0, 99]);
    peer.apis = [...APIS, ...served];
    peer.onRequest = (header, body) => this.#onRequest(peer, nodeId, header, body);
    this.#peers.set(peer, nodeId);
    return peer;
  }

  #onRequest(peer: Peer, nodeId: number, header: RequestHeader, body: ByteReader): undefined {
    const { apiKey, apiVersion, correlationId } = header;
    const send = <R extends Message>(response: R, value: EncodableOf<R>): void => {
      const frames = encodeResponseFrame(correlationId, codec(response, apiVersion), value);
      setImmediate(() => {
        if (!this.#down.has(nodeId)) peer.send(...frames);
      });
    };
    if (apiKey === 18) return;
    if (this.hung.has(nodeId)) return;
    this.asked.push(`${nodeId} ${apiKey}`);
    if (this.isForbidden && apiKey === 60) {
      send(DescribeClusterResponse, { ...this.#description(), errorCode: 31, brokers: [] });
    } else if (this.isForbidden && apiKey === 1) {
      send(FetchResponse, { errorCode: 31, responses: [] });
    } else if (apiKey === 60) {
      const asked = codec(DescribeClusterRequest, apiVersion).read(body);
      assert.equal(asked.endpointType, 2);
      send(DescribeClusterResponse, this.#description());
    } else if (apiKey === 1) {
      const request = codec(FetchRequest, apiVersion).read(body);
      if (request.maxBytes > 1) this.fetched.push(request);
      const answer = (value: EncodableOf<typeof FetchResponse>) => send(FetchResponse, value);
      this.#fetch({ nodeId, request, answer });
    } else if (apiKey === 59) {
      send(FetchSnapshotResponse, this.#piece(codec(FetchSnapshotRequest, apiVersion).read(body)));
    } else {
      const served = this.#served.get(apiKey);
      assert.ok(served !== undefined, `API ${apiKey} is not served`);
      const value = codec(served.request, apiVersion).read(body);
      send(served.response, served.serve(value, nodeId) as EncodableOf<Message>);
    }
  }

  #description(): EncodableOf<typeof DescribeClusterResponse> {
    return {
      throttleTimeMs: 0,
      errorCode: 0,
      clusterId: this.clusterId,
      controllerId: this.leaderId,
      brokers: [1, 2, 3].map((brokerId) => ({
        brokerId,
        ...FakeQuorum.address(brokerId),
        isFenced: false,
      })),
    };
  }

  #fetch(fetch: WaitingFetch): void {
    const { nodeId, request, answer } = fetch;
    const at = request.topics[0]?.partitions[0];
    assert.ok(at !== undefined);
    assert.equal(request.topics[0]?.topicId, METADATA_TOPIC_ID);
    if (request.clusterId !== null && request.clusterId !== this.clusterId) {
      answer({ errorCode: 104, responses: [] });
    } else if (at.currentLeaderEpoch !== this.epoch || nodeId !== this.leaderId) {
      answer(this.#fetchResponse(at.currentLeaderEpoch === this.epoch ? 6 : 74, {}));
    } else if (this.diverging !== undefined) {
      answer(this.#fetchResponse(0, { divergingEpoch: this.diverging }));
      this.diverging = undefined;
    } else if (this.snapshot !== undefined && at.fetchOffset === 0) {
      const { endOffset, epoch } = this.snapshot;
      answer(this.#fetchResponse(0, { snapshotId: { endOffset, epoch } }));
    } else {
      const next = this.batches.filter(
        (bytes) => new RecordBatch(bytes).lastOffset >= at.fetchOffset,
      );
      if (next.length === 0 && BigInt(this.highWatermark) <= at.highWatermark) {
        this.#waiting.push(fetch);
        return;
      }
      answer(this.#fetchResponse(0, { records: Buffer.concat(next) }));
    }
  }

  #fetchResponse(errorCode: number, wish: object): EncodableOf<typeof FetchResponse> {
    const partition = {
      partitionIndex: 0,
      errorCode,
      highWatermark: errorCode === 0 ? this.highWatermark : -1,
      abortedTransactions: null,
      records: null,
      ...(errorCode === 0
        ? {}
        : { currentLeader: { leaderId: this.leaderId, leaderEpoch: this.epoch } }),
      ...wish,
    };
    return {
      responses: [{ topicId: METADATA_TOPIC_ID, partitions: [partition] }],
      nodeEndpoints: [{ nodeId: this.leaderId, ...FakeQuorum.address(this.leaderId) }],
    };
  }

  #piece(request: FetchSnapshotRequest): EncodableOf<typeof FetchSnapshotResponse> {
    const asked = request.topics[0]?.partitions[0];
    assert.ok(asked !== undefined);
    assert.equal(request.topics[0]?.name, '__cluster_metadata');
    const { position, snapshotId } = asked;
    const found = this.snapshot?.endOffset === snapshotId.endOffset ? this.snapshot : undefined;
    const bytes = found?.bytes ?? Buffer.alloc(0);
    const partition = {
      index: 0,
      errorCode: found === undefined ? 98 : 0,
      snapshotId,
      size: bytes.length,
      position,
      unalignedRecords: bytes.subarray(position, position + this.pieceBytes),
    };
    this.afterPiece?.();
    this.afterPiece = undefined;
    return { errorCode: 0, topics: [{ name: '__cluster_metadata', partitions: [partition] }] };
  }
}
