/**
 * What is checked before a native topic is taken into a mirror: from which offsets it is taken, and
 * every reason not to, each of which leaves everything as it was (G29, G33).
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Uuid } from '../../../src/base/uuid.ts';
import { Failback, type QuestionClient } from '../../../src/guest/jobs/failback.ts';
import { finalConfigs } from '../../../src/guest/jobs/topic-settings.ts';
import type { PeerRows } from '../../../src/guest/state/peer-rows.ts';
import type { Runtime } from '../../../src/io/runtime.ts';
import { MirrorFailure } from '../../../src/mirror/causes.ts';
import type { KeyedRow } from '../../../src/mirror/coordinator-shard.ts';
import type { MirrorStateRow } from '../../../src/mirror/state-row.ts';
import type { MirrorStateName } from '../../../src/mirror/states.ts';
import { id, topic } from '../../metadata/harness.ts';
import { row, ScriptedSource } from '../../mirror/harness.ts';
import { mirrored } from '../../replication/harness.ts';
import { GUEST, MIRROR, SOURCE_ID, TestCluster } from '../jobs-harness.ts';

const T = id(1);
const HERE = 'here';
const OWN = { 'compression.type': 'lz4', 'retention.ms': '1' };

/** Two partitions on brokers 1 and 2, mirrored to the source's cluster until offset 8 and 9. */
class Stage {
  readonly cluster: TestCluster;
  readonly source = new ScriptedSource(SOURCE_ID);
  peer: PeerRows = { clusterId: 'source', rows: [peerRow(0, 8), peerRow(1, 9)] };
  /** What the leaders here answer. */
  range = { earliest: 0, latest: 100 };
  /** The batch that a fetch here begins with. */
  here = (offset: number): Uint8Array => mirrored(offset, 1);
  asked: number[] = [];
  partitions = 2;
  closed = 0;

  constructor(cluster: TestCluster) {
    this.cluster = cluster;
    this.source.partitions = 2;
    const client = this.source.asSource().client;
    // By now the source has what we have, unless a test says otherwise.
    this.#fetchAt = client.fetchAt.bind(client);
  }

  readonly #fetchAt: QuestionClient['fetchAt'];
  there = (offset: number): Uint8Array => mirrored(offset, 1);

  static async start(): Promise<Stage> {
    const cluster = await new TestCluster().withMirror();
    cluster.commit(...topic('t', T, [1, 2], [2, 1]));
    for (const [name, value] of Object.entries(OWN)) cluster.setConfig('t', name, value);
    cluster.trace.length = 0;
    return new Stage(cluster);
  }

  #client(): QuestionClient {
    return {
      listOffsets: async (_address, questions) =>
        questions.map(({ timestamp }) => ({
          errorCode: 0,
          offset: timestamp === -2n ? this.range.earliest : this.range.latest,
          timestamp: -1n,
          leaderEpoch: 0,
        })),
      fetchAt: async (_address, { offset }) => {
        this.asked.push(offset);
        return { errorCode: 0, records: this.here(offset) };
      },
      close: () => this.closed++,
    };
  }

  take(): ReturnType<Failback['take']> {
    const topicImage = this.cluster.image.topicsByName.get('t');
    assert.ok(topicImage !== undefined);
    const source = this.source.asSource();
    Object.assign(source.client, {
      fetchAt: async (...[address, at]: Parameters<QuestionClient['fetchAt']>) => {
        await this.#fetchAt(address, at);
        return { errorCode: 0, records: this.there(at.offset) };
      },
    });
    const failback = new Failback(this.cluster.runtime as unknown as Runtime, {
      context: this.cluster.context(),
      clusterId: HERE,
      source: () => source,
      addressOf: (brokerId) => ({ host: `broker-${brokerId}`, port: 1 }),
      security: undefined,
      membershipOffset: (previous) => (previous ?? 6) + 1,
      peerRows: async (_runtime, _settings, filter = () => true) =>
        this.peer === 'absent' ? 'absent' : { ...this.peer, rows: this.peer.rows.filter(filter) },
      connect: () => this.#client(),
    });
    const { partitions } = this;
    return failback.take({
      mirror: MIRROR,
      topic: topicImage,
      sourceTopicId: SOURCE_ID,
      partitions,
    });
  }

  /** A row of an episode in which the topic was mirrored from the source to here. */
  ownRow(partition: number, lastMirroredOffset: number): void {
    this.cluster.setRow('t', partition, 'STOPPED', {
      lastMirroredOffset,
      sourceClusterId: 'source',
      sourceTopicId: SOURCE_ID,
    });
  }

  get offsets(): readonly number[] | undefined {
    return this.cluster.catalog.topic('t')?.takeoverOffsets;
  }
}

function peerRow(
  partition: number,
  lastMirroredOffset: number,
  state: MirrorStateName = 'STOPPED',
  fields: Partial<MirrorStateRow> = {},
  topicId: Uuid = SOURCE_ID,
): KeyedRow {
  const from = { sourceClusterId: HERE, sourceTopicId: T };
  return {
    key: { mirror: 'theirs', topicId, partition },
    row: row(state, { partition, lastMirroredOffset, ...from, ...fields }),
  };
}

/** It is refused with this sentence, and nothing was written. */
async function refuses(stage: Stage, why: RegExp): Promise<void> {
  const outcome = await stage.take();
  assert.ok(outcome !== undefined && outcome !== 'none', 'it is not refused');
  assert.match(outcome.message, why);
  assert.deepEqual(stage.cluster.trace, []);
}

describe('G29 from which offsets a topic is taken', () => {
  test('where the other side ended mirroring it from here', async () => {
    const stage = await Stage.start();
    assert.equal(await stage.take(), undefined);
    assert.deepEqual(stage.cluster.trace, [`row t ${MIRROR} with id`]);
    const found = stage.cluster.catalog.topic('t');
    assert.deepEqual(found, {
      mirrorName: MIRROR,
      removed: false,
      membershipOffset: 7,
      topicId: T,
      sourceTopicId: SOURCE_ID,
      finalConfigs: finalConfigs(stage.cluster.image, new Map(Object.entries(OWN))),
      targetReplicationFactor: 2,
      takeoverOffsets: [8, 9],
    });
    // The batch right below each was compared.
    assert.deepEqual(stage.asked.sort(), [7, 8]);
    assert.equal(stage.closed, 1);
  });

  test('where an episode of ours ended, the other side having none', async () => {
    for (const peer of ['absent', { clusterId: 'source', rows: [] }] as const) {
      const stage = await Stage.start();
      stage.peer = peer;
      stage.ownRow(0, 5);
      stage.ownRow(1, 0);
      assert.equal(await stage.take(), undefined);
      assert.deepEqual(stage.offsets, [5, 0]);
    }
  });

  test('the higher of the two, unless the sides differ there', async () => {
    const stage = await Stage.start();
    stage.ownRow(0, 12);
    stage.ownRow(1, 12);
    stage.there = (offset) => mirrored(offset, offset === 11 ? 2 : 1);
    stage.here = (offset) => mirrored(offset, 1);
    assert.equal(await stage.take(), undefined);
    assert.deepEqual(stage.offsets, [8, 9]);
    const equal = await Stage.start();
    equal.ownRow(0, 12);
    equal.ownRow(1, 3);
    assert.equal(await equal.take(), undefined);
    assert.deepEqual(equal.offsets, [12, 9]);
  });

  test('none: neither side has a record of this very topic', async () => {
    const others = [
      peerRow(0, 8, 'STOPPED', { sourceClusterId: 'a third' }),
      peerRow(1, 9, 'STOPPED', { sourceTopicId: id(77) }),
      peerRow(1, 9, 'STOPPED', {}, id(78)),
      peerRow(1, -1),
    ];
    for (const peer of ['absent', { clusterId: 'source', rows: others }] as const) {
      const stage = await Stage.start();
      stage.peer = peer;
      assert.equal(await stage.take(), 'none');
      assert.deepEqual(stage.cluster.trace, []);
    }
  });
});

describe('G29 why a topic is not taken', () => {
  test('the source mirrors it from here still', async () => {
    const stage = await Stage.start();
    stage.peer = { clusterId: 'source', rows: [peerRow(0, 8), peerRow(1, 9, 'STOPPING')] };
    await refuses(
      stage,
      /still mirrors topic 't' from here: partition 1 is STOPPING in its mirror/,
    );
  });

  test('a partition of which nothing is known, or another number of partitions', async () => {
    const stage = await Stage.start();
    stage.peer = { clusterId: 'source', rows: [peerRow(0, 8)] };
    await refuses(stage, /not known up to where partition\(s\) 1 were mirrored/);
    const more = await Stage.start();
    more.partitions = 3;
    await refuses(more, /2 partition\(s\) here and 3 at the source/);
  });

  test('G33 tiered storage', async () => {
    const stage = await Stage.start();
    stage.cluster.setConfig('t', 'remote.storage.enable', 'true');
    await refuses(stage, /remote\.storage\.enable=true.*\(G33\)/);
  });

  test('a fenced guest, or no leader', async () => {
    const fenced = await Stage.start();
    fenced.cluster.fence(GUEST, true);
    await refuses(fenced, /Guest 201 is fenced/);
    const leaderless = await Stage.start();
    leaderless.cluster.setLeader('t', 1, -1);
    await refuses(leaderless, /t-1 has no leader/);
  });

  test('records that one side lost, or both deleted', async () => {
    const here = await Stage.start();
    here.range = { earliest: 0, latest: 7 };
    await refuses(here, /t-0 both sides had offsets below 8, but it ends at 7 here/);
    const there = await Stage.start();
    there.source.range = { earliest: 0, latest: 8 };
    await refuses(there, /t-1 both sides had offsets below 9, but it ends at 8 at the source/);
    const deleted = await Stage.start();
    deleted.range = { earliest: 9, latest: 100 };
    await refuses(deleted, /t-0 both sides had offsets below 8, but it begins at 9 here/);
  });

  test('T3 two histories', async () => {
    const stage = await Stage.start();
    stage.there = (offset) => mirrored(offset, 2);
    await refuses(stage, /batch at offset 7 differs from the source's/);
  });

  test('a side that does not answer', async () => {
    const stage = await Stage.start();
    stage.source.unreachable();
    await refuses(stage, /is not taken into the mirror: refused/);
    const silent = await Stage.start();
    const failback = silent.take.bind(silent);
    Object.defineProperty(silent, 'peer', {
      get: () => {
        throw new MirrorFailure('SOURCE_AUTHORIZATION_FAILED', 'may not read');
      },
    });
    const outcome = await failback();
    assert.match(String(outcome && outcome !== 'none' && outcome.message), /may not read/);
    assert.deepEqual(silent.cluster.trace, []);
  });
});
