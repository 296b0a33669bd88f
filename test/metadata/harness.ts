/**
 * What the metadata tests share: a runtime with a stepped clock, a metadata log in memory whose
 * unflushed bytes a crash loses, validators, and requests with all their fields.
 */
import assert from 'node:assert/strict';
import { silentLogger } from '../../src/base/logger.ts';
import { seededRandom } from '../../src/base/random.ts';
import type { Uuid } from '../../src/base/uuid.ts';
import type { Clock, Disk, DiskFile, Runtime, Timer } from '../../src/io/runtime.ts';
import type { ConfigValidators } from '../../src/metadata/config-validator.ts';
import type { DecideContext } from '../../src/metadata/decide.ts';
import {
  EmbeddedController,
  type EmbeddedControllerOptions,
} from '../../src/metadata/embedded-controller.ts';
import { emptyImage, type FeatureRange, type MetadataImage } from '../../src/metadata/image.ts';
import { applyRecords } from '../../src/metadata/image-delta.ts';
import type { MetadataLogStorage } from '../../src/metadata/metadata-log.ts';
import { type MetadataRecord, metadataRecord } from '../../src/metadata/record-framing.ts';
import { placeRecords } from '../../src/metadata/transaction-buffer.ts';
import type { CreateTopicsRequest } from '../../src/protocol/messages/19-create-topics.ts';
import type { BrokerHeartbeatRequest } from '../../src/protocol/messages/63-broker-heartbeat.ts';
import { RecordBatch } from '../../src/protocol/record-batch.ts';
import { noCrypto } from '../../src/sim/sim-crypto.ts';

export const CLUSTER_ID = 'testClusterIdOf22Chars';

/** A well-formed id that reads as its number. */
export function id(n: number): Uuid {
  return `${String(n).padStart(21, 'x')}A` as Uuid;
}

/** A clock that stands still until told otherwise. */
export class ManualClock implements Clock {
  #nowMs = 1000;
  #timers: { atMs: number; callback: () => void; cancelled: boolean }[] = [];

  wallMs(): number {
    return this.#nowMs;
  }

  monotonicMs(): number {
    return this.#nowMs;
  }

  setTimer(delayMs: number, callback: () => void): Timer {
    const timer = { atMs: this.#nowMs + delayMs, callback, cancelled: false };
    this.#timers.push(timer);
    return {
      cancel: () => {
        timer.cancelled = true;
      },
    };
  }

  defer(callback: () => void): void {
    queueMicrotask(callback);
  }

  /** Lets time pass, firing timers in order. */
  advance(ms: number): void {
    const end = this.#nowMs + ms;
    for (;;) {
      const due = this.#timers.filter((t) => !t.cancelled && t.atMs <= end);
      const next = due.sort((a, b) => a.atMs - b.atMs)[0];
      if (next === undefined) break;
      this.#timers = this.#timers.filter((t) => t !== next);
      this.#nowMs = Math.max(this.#nowMs, next.atMs);
      next.callback();
    }
    this.#nowMs = end;
  }

  /** The process stands still: time passes without any timer being served. */
  stall(ms: number): void {
    this.#nowMs += ms;
  }
}

/** Files in memory; enough for the quorum-state file. */
function memoryDisk(): Disk {
  const files = new Map<string, Uint8Array>();
  const refuse = (): never => assert.fail('not used by the metadata log');
  const open = (path: string): DiskFile => ({
    path,
    size: () => files.get(path)?.length ?? 0,
    read: refuse,
    write: (chunks) => {
      files.set(path, Buffer.concat(chunks));
    },
    truncate: (size) => {
      files.set(path, (files.get(path) ?? new Uint8Array()).slice(0, size));
    },
    sync: () => Promise.resolve(),
    syncNow: () => {},
    close: () => {},
  });
  return {
    open,
    readFile: (path) => files.get(path),
    list: refuse,
    fileSize: (path) => files.get(path)?.length,
    makeDirectory: refuse,
    rename: (from, to) => {
      files.set(to, files.get(from) as Uint8Array);
      files.delete(from);
    },
    remove: refuse,
    syncDirectory: () => {},
    lock: refuse,
  };
}

export interface TestRuntime extends Runtime {
  readonly clock: ManualClock;
}

export function testRuntime(seed = 1): TestRuntime {
  return {
    clock: new ManualClock(),
    random: seededRandom(seed),
    disk: memoryDisk(),
    network: {
      listen: () => assert.fail('no network here'),
      connect: () => assert.fail('no network here'),
    },
    crypto: noCrypto,
    compression: {
      compress: () => assert.fail('metadata is not compressed'),
      decompress: () => assert.fail('metadata is not compressed'),
    },
    logger: silentLogger,
  };
}

/** `__cluster_metadata-0` in memory. Flushes end when told to, or at once. */
export class MemoryLog implements MetadataLogStorage {
  readonly directory = '/data/__cluster_metadata-0';
  readonly logStartOffset = 0;
  logEndOffset = 0;
  latestEpoch: number | undefined;
  highWatermark = 0;
  flushes = 0;
  /** Set: flushes wait. */
  holdFlushes = false;
  failNextAppend = false;
  failNextFlush = false;
  #batches: Uint8Array[] = [];
  #durable = 0;
  #held: (() => void)[] = [];

  appendAsLeader(
    records: Uint8Array,
    leaderEpoch: number,
  ): ReturnType<MetadataLogStorage['appendAsLeader']> {
    if (this.failNextAppend) {
      return { error: 56, message: 'disk is full' };
    }
    const batch = new RecordBatch(records);
    batch.setBaseOffset(this.logEndOffset);
    batch.setPartitionLeaderEpoch(leaderEpoch);
    this.#batches.push(records);
    const firstOffset = batch.baseOffset;
    this.logEndOffset = batch.nextOffset;
    this.latestEpoch = leaderEpoch;
    return {
      error: 0,
      firstOffset,
      lastOffset: batch.lastOffset,
      logAppendTimeMs: -1,
      logStartOffset: 0,
      duplicate: false,
      appendedBytes: records.length,
    };
  }

  read(startOffset: number): ReturnType<MetadataLogStorage['read']> {
    const records = this.#batches.filter((b) => new RecordBatch(b).lastOffset >= startOffset);
    return {
      error: 0,
      // One batch at a time: readers must ask again.
      records: records.slice(0, 1),
      bytes: records[0]?.length ?? 0,
      highWatermark: this.highWatermark,
      lastStableOffset: this.highWatermark,
      logStartOffset: 0,
    };
  }

  updateHighWatermark(offset: number): boolean {
    this.highWatermark = offset;
    return true;
  }

  async flush(): Promise<void> {
    this.flushes++;
    const count = this.#batches.length;
    if (this.failNextFlush) throw new Error('EIO');
    if (this.holdFlushes) {
      await new Promise<void>((resolve) => {
        this.#held.push(resolve);
      });
    }
    this.#durable = Math.max(this.#durable, count);
  }

  /** Lets the flushes that wait go on. */
  release(): void {
    const held = this.#held;
    this.#held = [];
    for (const resolve of held) resolve();
  }

  /** The log as a restart finds it after losing what was not flushed. */
  afterCrash(): MemoryLog {
    const log = new MemoryLog();
    log.#batches = this.#batches.slice(0, this.#durable).map((batch) => batch.slice());
    log.#durable = log.#batches.length;
    const last = log.#batches.at(-1);
    if (last !== undefined) {
      log.logEndOffset = new RecordBatch(last).nextOffset;
      log.latestEpoch = new RecordBatch(last).partitionLeaderEpoch;
    }
    return log;
  }

  /** All bytes, as in the segment file. */
  bytes(): Uint8Array {
    return Buffer.concat(this.#batches);
  }
}

const LISTS = new Map([['cleanup.policy', 'delete']]);

/** Knows a few settings; `bad` is never a legal value. */
function validator(known: readonly string[], required?: string): ConfigValidators['topic'] {
  return {
    check: (overrides) => {
      for (const [name, value] of overrides) {
        if (!known.includes(name)) return `Unknown config name: ${name}.`;
        if (value === 'bad') return `Invalid value bad for configuration ${name}.`;
      }
      const missing = required !== undefined && !overrides.has(required);
      return missing ? `Missing required configuration ${required}.` : undefined;
    },
    listDefault: (name) => LISTS.get(name),
  };
}

export const VALIDATORS: ConfigValidators = {
  topic: validator(['cleanup.policy', 'retention.ms', 'segment.bytes']),
  broker: validator(['log.cleaner.threads']),
  group: validator(['consumer.session.timeout.ms']),
  mirror: validator(['bootstrap.servers', 'request.timeout.ms'], 'bootstrap.servers'),
};

/** An image made of these records, the first at offset 0. */
export function imageOf(records: readonly MetadataRecord[], from?: MetadataImage): MetadataImage {
  const previous = from ?? emptyImage(CLUSTER_ID);
  const lastOffset = previous.offset + records.length;
  return applyRecords(previous, placeRecords(records, lastOffset), lastOffset, 1).image;
}

export interface BrokerWish {
  readonly features?: readonly FeatureRange[];
  readonly fenced?: boolean;
  readonly rack?: string;
  readonly stopping?: boolean;
}

/** The record of a registered broker. */
export function broker(brokerId: number, wish: BrokerWish = {}): MetadataRecord {
  return metadataRecord('RegisterBrokerRecord', {
    brokerId,
    incarnationId: id(1000 + brokerId),
    brokerEpoch: 100 + brokerId,
    endPoints: [{ name: 'PLAINTEXT', host: 'localhost', port: 9092, securityProtocol: 0 }],
    features: [...(wish.features ?? [])],
    rack: wish.rack ?? null,
    fenced: wish.fenced ?? false,
    inControlledShutdown: wish.stopping ?? false,
    logDirs: [id(2000 + brokerId)],
  });
}

/** The records of a topic with one partition per replica list. */
export function topic(name: string, topicId: Uuid, ...partitions: number[][]): MetadataRecord[] {
  return [
    metadataRecord('TopicRecord', { name, topicId }),
    ...partitions.map((replicas, partitionId) =>
      metadataRecord('PartitionRecord', {
        partitionId,
        topicId,
        replicas,
        isr: replicas,
        removingReplicas: [],
        addingReplicas: [],
        leader: replicas[0] as number,
        leaderEpoch: 0,
        partitionEpoch: 0,
        directories: replicas.map((replica) => id(2000 + replica)),
      }),
    ),
  ];
}

export function config(
  resourceType: number,
  resourceName: string,
  name: string,
  value: string | null,
): MetadataRecord {
  return metadataRecord('ConfigRecord', { resourceType, resourceName, name, value });
}

export function feature(name: string, featureLevel: number): MetadataRecord {
  return metadataRecord('FeatureLevelRecord', { name, featureLevel });
}

/** What decide functions get besides the request; new topic ids are id(500), id(501), … */
export function contextOf(image: MetadataImage): DecideContext {
  let next = 500;
  return {
    image,
    nextOffset: image.offset + 1,
    validators: VALIDATORS,
    defaultPartitions: 3,
    defaultReplicationFactor: 1,
    newUuid: () => id(next++),
  };
}

type NewTopic = CreateTopicsRequest['topics'][number];

export function newTopic(name: string, wish: Partial<NewTopic> = {}): NewTopic {
  return {
    name,
    numPartitions: -1,
    replicationFactor: -1,
    assignments: [],
    configs: [],
    mirrorInfo: null,
    ...wish,
  };
}

export function createTopics(topics: NewTopic[], validateOnly = false): CreateTopicsRequest {
  return { topics, timeoutMs: 1000, validateOnly };
}

type BrokerRegistrationRequest = Parameters<EmbeddedController['registerBroker']>[0];

export function registration(
  brokerId: number,
  incarnation: number,
  wish: Partial<BrokerRegistrationRequest> = {},
): BrokerRegistrationRequest {
  return {
    brokerId,
    clusterId: CLUSTER_ID,
    incarnationId: id(incarnation),
    listeners: [{ name: 'PLAINTEXT', host: 'localhost', port: 9092, securityProtocol: 0 }],
    features: [
      { name: 'metadata.version', minSupportedVersion: 7, maxSupportedVersion: 29 },
      { name: 'mirror.version', minSupportedVersion: 0, maxSupportedVersion: 1 },
    ],
    rack: null,
    isMigratingZkBroker: false,
    logDirs: [id(2000 + brokerId)],
    previousBrokerEpoch: -1,
    ...wish,
  };
}

export function heartbeat(
  brokerId: number,
  brokerEpoch: number,
  wish: Partial<BrokerHeartbeatRequest> = {},
): BrokerHeartbeatRequest {
  return {
    brokerId,
    brokerEpoch,
    currentMetadataOffset: Number.MAX_SAFE_INTEGER,
    wantFence: false,
    wantShutDown: false,
    offlineLogDirs: [],
    cordonedLogDirs: null,
    ...wish,
  };
}

/** A controller over `log`, with broker 0 in its process. */
export function openController(
  runtime: Runtime,
  log: MetadataLogStorage,
  wish: Partial<EmbeddedControllerOptions> = {},
): Promise<EmbeddedController> {
  return EmbeddedController.open(runtime, {
    nodeId: 0,
    clusterId: CLUSTER_ID,
    localBrokerId: 0,
    log,
    validators: VALIDATORS,
    defaultPartitions: 3,
    defaultReplicationFactor: 1,
    onFailure: () => {},
    ...wish,
  });
}
