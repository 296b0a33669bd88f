/**
 * A one-broker Kafka in memory with one topic and transactions of version 2, for what a real one
 * cannot be made to do at a wish: lose an answer after acting on it, refuse at a given step.
 *
 * Requests and responses are real frames. `onCall` sees every request before it is acted upon.
 */
import type { ByteReader } from '../../src/base/bytes.ts';
import { type Uuid, ZERO_UUID } from '../../src/base/uuid.ts';
import type { Network } from '../../src/io/runtime.ts';
import { codec } from '../../src/protocol/codec.ts';
import { buildTransactionMarker } from '../../src/protocol/control-record.ts';
import { errors } from '../../src/protocol/errors.ts';
import { encodeResponseFrame } from '../../src/protocol/frame.ts';
import { ProduceRequest, ProduceResponse } from '../../src/protocol/messages/00-produce.ts';
import { FetchRequest, FetchResponse } from '../../src/protocol/messages/01-fetch.ts';
import {
  ListOffsetsRequest,
  ListOffsetsResponse,
} from '../../src/protocol/messages/02-list-offsets.ts';
import { MetadataRequest, MetadataResponse } from '../../src/protocol/messages/03-metadata.ts';
import {
  FindCoordinatorRequest,
  FindCoordinatorResponse,
} from '../../src/protocol/messages/10-find-coordinator.ts';
import {
  InitProducerIdRequest,
  InitProducerIdResponse,
} from '../../src/protocol/messages/22-init-producer-id.ts';
import { EndTxnRequest, EndTxnResponse } from '../../src/protocol/messages/26-end-txn.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import type { RequestHeader } from '../../src/protocol/request-header.ts';
import type { EncodableOf, Message, MessageOf } from '../../src/protocol/schema.ts';
import { Peer } from '../protocol/kafka-peer.ts';

const NAMES = new Map([
  [0, 'Produce'],
  [1, 'Fetch'],
  [2, 'ListOffsets'],
  [3, 'Metadata'],
  [10, 'FindCoordinator'],
  [22, 'InitProducerId'],
  [26, 'EndTxn'],
]);

/**
 * What becomes of a request: an error code instead of an answer, `lost` before it is acted upon,
 * `unanswered`: acted upon, then the connection ends. Undefined: answered.
 */
export type Fate = number | 'lost' | 'unanswered' | undefined;

interface Transaction {
  readonly first: Map<number, number>;
}

interface Holder {
  readonly producerId: bigint;
  epoch: number;
  open: Transaction | undefined;
}

interface Log {
  readonly batches: Uint8Array[];
  end: number;
  readonly aborted: { readonly producerId: bigint; readonly firstOffset: number }[];
}

/** See the file header. */
export class FakeKafka {
  readonly topic: string;
  readonly partitions: readonly number[];
  topicId = 'c3RhdGUtc3RhdGUtc3RhdA' as Uuid;
  /** Names of requests but fetches and metadata, in the order in which they arrived. */
  readonly calls: string[] = [];
  onCall: (name: string, transactionalId: string | undefined) => Fate = () => undefined;
  topicError = 0;
  fetchError = 0;
  readonly #logs = new Map<number, Log>();
  readonly #holders = new Map<string, Holder>();
  readonly #held = new Set<() => void>();
  #nextProducerId = 1000n;

  constructor(topic: string, partitions: number) {
    this.topic = topic;
    this.partitions = Array.from({ length: partitions }, (_, index) => index);
    for (const index of this.partitions)
      this.#logs.set(index, { batches: [], end: 0, aborted: [] });
  }

  network(): Network {
    const listen = (): never => {
      throw new Error('not part of this test');
    };
    return { listen, connect: async () => this.#peer() };
  }

  /** Producer ids and epochs of the data batches in all logs. */
  batches(): { readonly partition: number; readonly id: bigint; readonly epoch: number }[] {
    return [...this.#logs].flatMap(([partition, { batches }]) =>
      batches
        .map((bytes) => new RecordBatch(bytes))
        .filter(({ isControl }) => !isControl)
        .map(({ producerId, producerEpoch }) => ({
          partition,
          id: producerId,
          epoch: producerEpoch,
        })),
    );
  }

  /** Appends a batch of a transaction that somebody else runs. */
  produceAs(transactionalId: string, partition: number, bytes: Uint8Array): void {
    const holder = this.#holder(transactionalId);
    this.#append(holder, partition, new Uint8Array(bytes));
  }

  endAs(transactionalId: string, commit: boolean): void {
    this.#end(this.#holder(transactionalId), commit);
  }

  /** The partition's log is gone, and begins anew. */
  wipe(partition: number): void {
    this.#logs.set(partition, { batches: [], end: 0, aborted: [] });
    for (const retry of [...this.#held]) retry();
  }

  /** The producer id and the epoch under which a transactional id writes now. */
  holderOf(transactionalId: string): { readonly id: bigint; readonly epoch: number } {
    const { producerId, epoch } = this.#holder(transactionalId);
    return { id: producerId, epoch };
  }

  #holder(transactionalId: string): Holder {
    let holder = this.#holders.get(transactionalId);
    if (holder === undefined) {
      holder = { producerId: this.#nextProducerId++, epoch: -1, open: undefined };
      this.#holders.set(transactionalId, holder);
    }
    return holder;
  }

  #log(partition: number): Log {
    const log = this.#logs.get(partition);
    if (log === undefined) throw new Error(`no partition ${partition}`);
    return log;
  }

  #append(holder: Holder, partition: number, bytes: Uint8Array): number {
    const log = this.#log(partition);
    const batch = new RecordBatch(bytes);
    batch.setBaseOffset(log.end);
    const base = log.end;
    log.end = batch.nextOffset;
    log.batches.push(bytes);
    holder.open ??= { first: new Map() };
    if (!holder.open.first.has(partition)) holder.open.first.set(partition, base);
    return base;
  }

  #end(holder: Holder, commit: boolean): void {
    for (const [partition, firstOffset] of holder.open?.first ?? []) {
      const log = this.#log(partition);
      const { producerId, epoch } = holder;
      const marker = { producerId, producerEpoch: epoch, commit, coordinatorEpoch: 0 };
      log.batches.push(buildTransactionMarker({ ...marker, timestamp: 1, baseOffset: log.end }));
      log.end++;
      if (!commit) log.aborted.push({ producerId, firstOffset });
    }
    holder.open = undefined;
    for (const retry of [...this.#held]) retry();
  }

  #lastStable(partition: number): number {
    const open = [...this.#holders.values()].flatMap(
      (holder) => holder.open?.first.get(partition) ?? [],
    );
    return Math.min(this.#log(partition).end, ...open);
  }

  // --- requests ---------------------------------------------------------------------------------

  #peer(): Peer {
    const peer = new Peer();
    peer.apis = [
      [0, 3, 13],
      [1, 4, 17],
      [2, 1, 10],
      [3, 0, 12],
      [10, 0, 6],
      [18, 0, 4],
      [22, 0, 5],
      [26, 0, 5],
    ];
    peer.features = [{ name: 'transaction.version', maxVersionLevel: 2, minVersionLevel: 2 }];
    peer.onRequest = (header, body) => this.#onRequest(peer, header, body);
    return peer;
  }

  #onRequest(peer: Peer, header: RequestHeader, body: ByteReader): Uint8Array[] | undefined {
    const name = NAMES.get(header.apiKey);
    if (name === undefined) return undefined;
    const answer = this.#answering(peer, header, body);
    if (name === 'Fetch') return answer.fetch();
    if (name === 'Metadata') return answer.metadata();
    this.calls.push(name);
    const fate = this.onCall(name, answer.transactionalId());
    const ended = { cause: 'ECONNRESET', message: 'lost' };
    if (fate === 'lost') {
      setImmediate(() => peer.end(ended));
      return undefined;
    }
    const response = answer.other(typeof fate === 'number' ? fate : undefined);
    if (fate !== 'unanswered') return response;
    setImmediate(() => peer.end(ended));
    return undefined;
  }

  #answering(peer: Peer, header: RequestHeader, body: ByteReader) {
    const { apiVersion: version, correlationId, apiKey } = header;
    const read = <M extends Message>(message: M): MessageOf<M> =>
      codec(message, version).read(body);
    const frame = <M extends Message>(message: M, value: EncodableOf<M>): Uint8Array[] =>
      encodeResponseFrame(correlationId, codec(message, version), value);
    const request = this.#decode(apiKey, read);
    return {
      transactionalId: () =>
        'transactionalId' in request ? (request.transactionalId ?? undefined) : undefined,
      metadata: () => frame(MetadataResponse, this.#metadata()),
      fetch: () => {
        const answer = (): Uint8Array[] | undefined => {
          const response = this.#fetch(request as FetchRequest);
          return response === undefined ? undefined : frame(FetchResponse, response);
        };
        const now = answer();
        if (now !== undefined) return now;
        const retry = (): void => {
          const later = answer();
          if (later === undefined) return;
          this.#held.delete(retry);
          setImmediate(() => peer.send(...later));
        };
        this.#held.add(retry);
        return undefined;
      },
      other: (error: number | undefined): Uint8Array[] => {
        switch (apiKey) {
          case 0:
            return frame(ProduceResponse, this.#produce(request as ProduceRequest, error));
          case 2:
            return frame(ListOffsetsResponse, this.#listOffsets(request as ListOffsetsRequest));
          case 10:
            return frame(FindCoordinatorResponse, this.#findCoordinator(error));
          case 22:
            return frame(
              InitProducerIdResponse,
              this.#init(request as InitProducerIdRequest, error),
            );
          default:
            return frame(EndTxnResponse, this.#endTxn(request as EndTxnRequest, error));
        }
      },
    };
  }

  #decode(apiKey: number, read: <M extends Message>(message: M) => MessageOf<M>) {
    switch (apiKey) {
      case 0:
        return read(ProduceRequest);
      case 1:
        return read(FetchRequest);
      case 2:
        return read(ListOffsetsRequest);
      case 3:
        return read(MetadataRequest);
      case 10:
        return read(FindCoordinatorRequest);
      case 22:
        return read(InitProducerIdRequest);
      default:
        return read(EndTxnRequest);
    }
  }

  #metadata(): EncodableOf<typeof MetadataResponse> {
    const partitions = this.partitions.map((partitionIndex) => ({
      errorCode: 0,
      partitionIndex,
      leaderId: 1,
      leaderEpoch: 0,
      replicaNodes: [1],
      isrNodes: [1],
    }));
    return {
      brokers: [{ nodeId: 1, host: 'broker', port: 9092 }],
      clusterId: 'fake',
      topics: [
        {
          errorCode: this.topicError,
          name: this.topic,
          topicId: this.topicError === 0 ? this.topicId : ZERO_UUID,
          partitions: this.topicError === 0 ? partitions : [],
        },
      ],
    };
  }

  #findCoordinator(error: number | undefined): EncodableOf<typeof FindCoordinatorResponse> {
    return { errorCode: error ?? 0, nodeId: 1, host: 'broker', port: 9092, errorMessage: null };
  }

  #init({ transactionalId }: InitProducerIdRequest, error: number | undefined) {
    if (error !== undefined) return { throttleTimeMs: 0, errorCode: error, producerEpoch: -1 };
    const holder = this.#holder(transactionalId ?? '');
    if (holder.open !== undefined) this.#end(holder, false);
    holder.epoch++;
    const { producerId, epoch: producerEpoch } = holder;
    return { throttleTimeMs: 0, errorCode: 0, producerId, producerEpoch };
  }

  #produce(request: ProduceRequest, error: number | undefined) {
    const holder = this.#holder(request.transactionalId ?? '');
    const partitionData = request.topicData.flatMap((each) => each.partitionData);
    const partitionResponses = partitionData.map(({ index, records }) => {
      const bytes = new Uint8Array(records ?? []);
      const isCurrent = new RecordBatch(bytes).producerEpoch === holder.epoch;
      const errorCode = error ?? (isCurrent ? 0 : errors.INVALID_PRODUCER_EPOCH.code);
      const baseOffset = errorCode === 0 ? this.#append(holder, index, bytes) : -1;
      return { index, errorCode, baseOffset, recordErrors: [], errorMessage: null };
    });
    return { responses: [{ name: this.topic, topicId: this.topicId, partitionResponses }] };
  }

  /** As version 2 does: the epoch moves on, and a repeat of the same end is a success. */
  #endTxn(request: EndTxnRequest, error: number | undefined) {
    const holder = this.#holder(request.transactionalId);
    const { producerId } = holder;
    const answer = (errorCode: number) => ({
      throttleTimeMs: 0,
      errorCode,
      producerId,
      producerEpoch: holder.epoch,
    });
    if (error !== undefined) return answer(error);
    const isRepeat = request.producerEpoch === holder.epoch - 1 && holder.open === undefined;
    if (isRepeat && this.#ended.has(`${producerId}/${request.producerEpoch}`)) return answer(0);
    if (request.producerEpoch !== holder.epoch) return answer(errors.INVALID_PRODUCER_EPOCH.code);
    this.#ended.add(`${producerId}/${holder.epoch}`);
    this.#end(holder, request.committed);
    holder.epoch++;
    return answer(0);
  }

  readonly #ended = new Set<string>();

  #listOffsets({ topics, isolationLevel }: ListOffsetsRequest) {
    const partitions = topics.flatMap((each) => each.partitions);
    const answers = partitions.map(({ partitionIndex, timestamp }) => {
      const end =
        isolationLevel === 1 ? this.#lastStable(partitionIndex) : this.#log(partitionIndex).end;
      return { partitionIndex, errorCode: 0, offset: timestamp === -2n ? 0 : end };
    });
    return { throttleTimeMs: 0, topics: [{ name: this.topic, partitions: answers }] };
  }

  /** Undefined: there is nothing to read yet. */
  #fetch({ topics }: FetchRequest): EncodableOf<typeof FetchResponse> | undefined {
    const asked = topics.flatMap((each) => each.partitions);
    const partitions = asked.map(({ partition: partitionIndex, fetchOffset }) => {
      const log = this.#log(partitionIndex);
      const lastStableOffset = this.#lastStable(partitionIndex);
      const isBeyond = fetchOffset > log.end;
      const batches = log.batches.filter((bytes) => {
        const { lastOffset, baseOffset } = new RecordBatch(bytes);
        return lastOffset >= fetchOffset && baseOffset < lastStableOffset;
      });
      return {
        partitionIndex,
        errorCode: isBeyond ? errors.OFFSET_OUT_OF_RANGE.code : this.fetchError,
        highWatermark: log.end,
        lastStableOffset,
        logStartOffset: 0,
        abortedTransactions: log.aborted,
        records: batches.map((bytes) => new Uint8Array(bytes)),
      };
    });
    const isIdle = partitions.every(
      ({ records, errorCode }) => records.length === 0 && errorCode === 0,
    );
    if (isIdle) return undefined;
    return { responses: [{ topic: this.topic, topicId: this.topicId, partitions }] };
  }
}
