/**
 * Y6, G23: which partitions take part in a guest's group offset job, whoever leads them, and how
 * its sink behaves when brokers do not answer. The coordinators of a real cluster are asked in
 * test/interop/guest-group-offsets.test.ts.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type ClusterClient, ClusterError } from '../../src/guest/cluster-client.ts';
import { ClusterGroupOffsetSink } from '../../src/guest/group-offset-sink.ts';
import {
  GuestGroupOffsets,
  GuestMirroredPartitions,
  RANGE_MAX_AGE_MS,
} from '../../src/guest/group-offsets.ts';
import { GUEST_CONFIG } from '../../src/guest/guest-brokers.ts';
import { ConfigResourceType, type MetadataImage } from '../../src/metadata/image.ts';
import type { KeyedRow } from '../../src/mirror/coordinator-shard.ts';
import type { MirroredPartition, OffsetRange } from '../../src/mirror/group-offsets/ports.ts';
import { type RowKey, rowKeyText } from '../../src/mirror/state-row.ts';
import type { MirrorStateName } from '../../src/mirror/states.ts';
import { errors } from '../../src/protocol/errors.ts';
import { ListOffsetsRequest } from '../../src/protocol/messages/02-list-offsets.ts';
import { OffsetFetchRequest } from '../../src/protocol/messages/09-offset-fetch.ts';
import { ListGroupsRequest } from '../../src/protocol/messages/16-list-groups.ts';
import type { Message } from '../../src/protocol/schema.ts';
import { broker, config, id, imageOf, testRuntime, topic } from '../metadata/harness.ts';
import { row } from '../mirror/harness.ts';

const [US, OTHER] = [201, 202];
const TOPIC_ID = id(7);
const SOURCE_ID = id(8);
const { BROKER, TOPIC } = ConfigResourceType;

type Asked = { readonly to: number; readonly request: Message; readonly value: object };

/** Partitions 0 and 1 are led by us, 2 and 3 by another guest, 4 by an Apache broker. */
class Desk {
  readonly runtime = testRuntime();
  image: MetadataImage = imageOf([
    broker(1),
    broker(2, { fenced: true }),
    broker(US),
    broker(OTHER),
    config(BROKER, String(US), GUEST_CONFIG, 'true'),
    config(BROKER, String(OTHER), GUEST_CONFIG, 'true'),
    ...topic('t', TOPIC_ID, [US, 1], [US, 1], [OTHER, 1], [OTHER, 1], [1, US]),
    config(TOPIC, 't', 'mirror.name', 'm'),
  ]);
  readonly rows = new Map<string, KeyedRow>();
  readonly local = new Map<number, OffsetRange>([[0, { logStartOffset: 1, logEndOffset: 9 }]]);
  readonly asked: Asked[] = [];
  /** Answers ListOffsets: start and last stable offset of the other guest's partitions. */
  readonly ranges = new Map<number, readonly [number, number]>([
    [2, [3, 30]],
    [3, [4, 40]],
  ]);
  failure: ClusterError | undefined;
  readonly partitions: GuestMirroredPartitions;

  constructor() {
    for (let partition = 0; partition < 5; partition++) this.record(partition, 'MIRRORING');
    const cluster = { call: this.#call } as unknown as ClusterClient;
    this.partitions = new GuestMirroredPartitions(this.runtime, {
      brokerId: US,
      image: () => this.image,
      store: {
        rows: () => [...this.rows.values()],
        known: (key) => this.rows.get(rowKeyText(key))?.row,
        jobs: () => undefined,
      },
      local: {
        mirroring: async () => [...this.local.keys()].map((partition) => this.partition(partition)),
        range: ({ partition }) => this.local.get(partition),
      },
      cluster,
    });
  }

  record(partition: number, state: MirrorStateName): void {
    const key: RowKey = { mirror: 'm', topicId: TOPIC_ID, partition };
    const recorded = row(state, { partition, sourceTopicId: SOURCE_ID });
    this.rows.set(rowKeyText(key), { key, row: recorded });
  }

  partition(partition: number): MirroredPartition {
    return { mirror: 'm', topic: 't', topicId: TOPIC_ID, sourceTopicId: SOURCE_ID, partition };
  }

  #call = async (target: { id: number }, request: Message, _response: Message, value: object) => {
    this.asked.push({ to: target.id, request, value });
    if (this.failure !== undefined) throw this.failure;
    assert.equal(request, ListOffsetsRequest);
    const { topics } = value as {
      topics: { name: string; partitions: { partitionIndex: number; timestamp: bigint }[] }[];
    };
    return {
      topics: topics.map(({ name, partitions }) => ({
        name,
        partitions: partitions.map(({ partitionIndex, timestamp }) => ({
          partitionIndex,
          errorCode: this.ranges.has(partitionIndex) ? 0 : errors.NOT_LEADER_OR_FOLLOWER.code,
          offset: this.ranges.get(partitionIndex)?.[timestamp === -2n ? 0 : 1] ?? -1,
        })),
      })),
    };
  };

  async mirroring(): Promise<number[]> {
    const found = await this.partitions.mirroring('m');
    assert.ok(found.every(({ sourceTopicId }) => sourceTopicId === SOURCE_ID));
    return found.map(({ partition }) => partition);
  }

  range(partition: number): OffsetRange | undefined {
    const range = this.partitions.range(this.partition(partition));
    if (range === undefined) return undefined;
    return { logStartOffset: range.logStartOffset, logEndOffset: range.logEndOffset };
  }
}

test('Y6 G23: partitions led by other guests take part, within what is decided there', async () => {
  const desk = new Desk();
  assert.deepEqual(await desk.mirroring(), [0, 2, 3]);
  assert.deepEqual(
    [0, 1, 2, 3, 4].map((partition) => desk.range(partition)),
    [
      { logStartOffset: 1, logEndOffset: 9 },
      undefined,
      { logStartOffset: 3, logEndOffset: 30 },
      { logStartOffset: 4, logEndOffset: 40 },
      undefined,
    ],
  );
  assert.deepEqual(
    desk.asked.map(({ to, value }) => [to, (value as { isolationLevel: number }).isolationLevel]),
    [
      [OTHER, 1],
      [OTHER, 1],
    ],
    'one question for the starts, one for the last stable offsets',
  );
  await desk.mirroring();
  assert.equal(desk.asked.length, 2, 'ranges are used for a while');
  await desk.runtime.clock.advance(RANGE_MAX_AGE_MS);
  desk.ranges.set(2, [5, 50]);
  await desk.mirroring();
  assert.deepEqual(desk.range(2), { logStartOffset: 5, logEndOffset: 50 });
});

test('Y6: a partition led elsewhere that stops, moves or leaves its mirror is out', async () => {
  const desk = new Desk();
  await desk.mirroring();
  desk.record(2, 'STOPPING');
  assert.equal(desk.range(2), undefined);
  assert.deepEqual(await desk.mirroring(), [0, 3]);
  desk.image = imageOf([config(TOPIC, 't', 'mirror.name', 'm.removed')], desk.image);
  assert.equal(desk.range(3), undefined);
  assert.deepEqual(await desk.mirroring(), [0]);
});

test('Y6: while its leader does not answer a partition takes no part', async () => {
  const desk = new Desk();
  desk.failure = new ClusterError('unreachable', 'refused');
  assert.deepEqual(await desk.mirroring(), [0]);
  desk.failure = undefined;
  desk.ranges.delete(3);
  assert.deepEqual(await desk.mirroring(), [0, 2]);
});

test('G23: a guest runs the jobs of the mirrors whose row names it', () => {
  const jobs = new Map([
    ['ours', { guestId: US }],
    ['theirs', { guestId: OTHER }],
  ]);
  const offsets = new GuestGroupOffsets(testRuntime(), {
    brokerId: US,
    image: () => new Desk().image,
    store: { rows: () => [], known: () => undefined, jobs: (mirror) => jobs.get(mirror) },
    brokers: () => [],
  });
  assert.deepEqual(['ours', 'theirs', 'none'].map(offsets.ownsJobs), [true, false, false]);
  offsets.close();
});

/** A sink over scripted brokers; a broker's failure or error code stands for its groups. */
function sinkOver(brokers: Record<number, Record<string, number> | ClusterError | number>) {
  const call = async ({ id: to }: { id: number }, request: Message, _response: Message) => {
    const scripted = brokers[to];
    if (scripted instanceof ClusterError) throw scripted;
    if (typeof scripted === 'number') return { errorCode: scripted, groups: [] };
    const groups = Object.entries(scripted ?? {});
    if (request === ListGroupsRequest) {
      return {
        errorCode: 0,
        groups: groups.map(([groupId]) => ({
          groupId,
          groupState: 'Empty',
          groupType: groupId.startsWith('share') ? 'share' : 'classic',
        })),
      };
    }
    assert.equal(request, OffsetFetchRequest);
    return {
      groups: groups.map(([groupId, committedOffset]) => ({
        groupId,
        errorCode: 0,
        topics: [
          { name: 't', partitions: [{ partitionIndex: 0, committedOffset, metadata: null }] },
        ],
      })),
    };
  };
  return new ClusterGroupOffsetSink(testRuntime(), {
    cluster: { call } as unknown as ClusterClient,
    brokerIds: () => Object.keys(brokers).map(Number),
  });
}

const HELD_7 = {
  errorCode: 0,
  hasMembers: false,
  offsets: new Map([['t-0', { offset: 7, metadata: '' }]]),
};

test('Y6: a group that no answering broker has is only absent when all answered', async () => {
  const nothing = { errorCode: 0, hasMembers: false, offsets: new Map() };
  const whole = sinkOver({ 1: { a: 7 }, 2: {} });
  assert.deepEqual(Object.fromEntries(await whole.read(['a', 'b'])), { a: HELD_7, b: nothing });
  const gone = errors.NETWORK_EXCEPTION.code;
  const half = sinkOver({ 1: { a: 7 }, 2: new ClusterError('unreachable', 'refused') });
  const held = Object.fromEntries(await half.read(['a', 'b']));
  assert.deepEqual(held, { a: HELD_7, b: { ...nothing, errorCode: gone } });
  const loading = errors.COORDINATOR_LOAD_IN_PROGRESS.code;
  assert.equal((await sinkOver({ 1: loading }).read(['a'])).get('a')?.errorCode, loading);
  const away = errors.COORDINATOR_NOT_AVAILABLE.code;
  assert.equal((await sinkOver({}).read(['a'])).get('a')?.errorCode, away);
});

test('G32: nothing counts as lowered unless all brokers answered', async () => {
  const partition = { topic: 't', topicId: TOPIC_ID, partition: 0 };
  const late = errors.REQUEST_TIMED_OUT.code;
  const half = sinkOver({ 1: { a: 7 }, 2: new ClusterError('timedOut', 'no answer') });
  assert.deepEqual(await half.lower(partition, 3), { errorCode: late, lowered: [] });
  const fine = sinkOver({ 1: { a: 3, 'share-b': 9 } });
  assert.deepEqual(await fine.lower(partition, 3), { errorCode: 0, lowered: [] });
});
