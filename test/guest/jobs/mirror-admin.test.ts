/**
 * CreateMirror, changes of settings, and RemoveTopicsFromMirror as rows (G12, G20, G22, G23).
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { type Uuid, ZERO_UUID } from '../../../src/base/uuid.ts';
import { producerIdTag } from '../../../src/guest/jobs/mirror-admin.ts';
import type { MirrorSettingsRow } from '../../../src/guest/state/catalog.ts';
import { ConfigResourceType } from '../../../src/metadata/image.ts';
import { ApiKey } from '../../../src/protocol/api-keys.ts';
import { errorName, errors } from '../../../src/protocol/errors.ts';
import type {
  IncrementalAlterConfigsRequest,
  IncrementalAlterConfigsResponse,
} from '../../../src/protocol/messages/44-incremental-alter-configs.ts';
import type { CreateMirrorResponse } from '../../../src/protocol/messages/12790-create-mirror.ts';
import type {
  RemoveTopicsFromMirrorRequest,
  RemoveTopicsFromMirrorResponse,
} from '../../../src/protocol/messages/12792-remove-topics-from-mirror.ts';
import { broker, config, id, topic } from '../../metadata/harness.ts';
import { GUEST, MIRROR, OTHER_GUEST, SOURCE_ID, TestCluster } from '../jobs-harness.ts';

const { MIRROR: MIRROR_TYPE, BROKER } = ConfigResourceType;
const SOURCE = 'mirror.source.cluster.id';

async function create(cluster: TestCluster, name: string | null, configs: Record<string, string>) {
  const response = (await cluster.admin().forward(ApiKey.CreateMirror, {
    mirrorName: name,
    config: Object.entries(configs).map(([key, value]) => ({ name: key, value })),
    skipValidation: false,
  })) as CreateMirrorResponse;
  return { error: errorName(response.errorCode), message: response.errorMessage ?? '' };
}

const settings = { 'bootstrap.servers': 'h:1' };

describe('CreateMirror', () => {
  test('G22: claims the jobs, then records the mirror; the image shows it', async () => {
    const cluster = new TestCluster();
    assert.equal((await create(cluster, 'm', settings)).error, 'NONE');
    assert.deepEqual(cluster.trace, [`row jobs m ${GUEST}`, 'row mirror m']);
    assert.deepEqual([...cluster.image.configs(MIRROR_TYPE, 'm')], Object.entries(settings));
    assert.equal(cluster.catalog.jobs('m')?.guestId, GUEST);
    const tag = cluster.catalog.settings('m')?.producerIdTag ?? 0;
    assert.ok(tag >= 1 && tag <= 4095, `${tag}`);
  });

  const refused: [name: string | null, configs: Record<string, string>, error: string][] = [
    [null, settings, 'INVALID_REQUEST'],
    ['x.removed', settings, 'INVALID_REQUEST'],
    [MIRROR, settings, 'INVALID_REQUEST'],
    ['n', {}, 'INVALID_CONFIG'],
    ['n', { ...settings, nope: '1' }, 'INVALID_CONFIG'],
  ];
  for (const [name, configs, error] of refused) {
    test(`A2, O6: ${name} ${JSON.stringify(configs)} is ${error}, and leaves no row`, async () => {
      const cluster = await new TestCluster().withMirror();
      const response = await create(cluster, name, configs);
      assert.equal(response.error, error);
      assert.notEqual(response.message, '');
      assert.deepEqual(cluster.trace, []);
    });
  }

  test('a row that cannot be written is the answer', async () => {
    const cluster = new TestCluster();
    cluster.failNextWrite = errors.NOT_COORDINATOR.code;
    assert.equal((await create(cluster, 'm', settings)).error, 'NOT_COORDINATOR');
    assert.deepEqual(cluster.catalog.mirrors(), []);
    assert.equal((await create(cluster, 'm', settings)).error, 'NONE');
  });
});

describe('G20: producer id tags', () => {
  test('one per source cluster, the same for two mirrors of one source', async () => {
    const cluster = new TestCluster();
    const store = cluster.storeOf(GUEST);
    const tags = new Map<string, number>();
    for (let i = 0; i < 200; i++) {
      const source = `cluster-${i}`;
      const tag = producerIdTag(store, `m${i}`, source) ?? 0;
      assert.ok(tag >= 1 && tag <= 4095);
      const configs = new Map([[SOURCE, source]]);
      await store.writeSettings(`m${i}`, { configs, producerIdTag: tag });
      tags.set(source, tag);
    }
    assert.equal(new Set(tags.values()).size, 200);
    assert.equal(producerIdTag(store, 'again', 'cluster-17'), tags.get('cluster-17'));
  });

  test('the tag of a source does not depend on what else is mirrored, where it is free', () => {
    const empty = new TestCluster().storeOf(GUEST);
    const elsewhere = new TestCluster().storeOf(OTHER_GUEST);
    assert.equal(producerIdTag(empty, 'a', 'S'), producerIdTag(elsewhere, 'b', 'S'));
  });

  test('unknown sources are not taken for each other; 4095 tags are all there are', () => {
    const rows = new Map<string, MirrorSettingsRow>();
    const store = {
      ...new TestCluster().storeOf(GUEST),
      mirrors: () => [...rows.keys()],
      settings: (mirror: string) => rows.get(mirror),
    };
    for (let tag = 1; tag <= 4095; tag++) {
      if (tag !== 1234) rows.set(`m${tag}`, { configs: new Map(), producerIdTag: tag });
    }
    assert.equal(producerIdTag(store, 'the last', ''), 1234);
    rows.set('the last', { configs: new Map(), producerIdTag: 1234 });
    assert.equal(producerIdTag(store, 'one more', ''), undefined);
  });
});

describe('A6: settings of a mirror', () => {
  async function alter(
    cluster: TestCluster,
    name: string,
    changes: [string, number, string | null][],
  ) {
    const response = (await cluster.admin().forward(ApiKey.IncrementalAlterConfigs, {
      resources: [
        {
          resourceType: MIRROR_TYPE,
          resourceName: name,
          configs: changes.map(([key, configOperation, value]) => ({
            name: key,
            configOperation,
            value,
          })),
        },
      ],
      validateOnly: false,
    } satisfies IncrementalAlterConfigsRequest)) as IncrementalAlterConfigsResponse;
    return errorName(response.responses[0]?.errorCode ?? -1);
  }

  test('are one row; the tag stays', async () => {
    const cluster = await new TestCluster().withMirror();
    assert.equal(await alter(cluster, MIRROR, [['request.timeout.ms', 0, '5']]), 'NONE');
    assert.deepEqual(cluster.trace, ['row mirror m']);
    assert.deepEqual(Object.fromEntries(cluster.catalog.settings(MIRROR)?.configs ?? []), {
      'bootstrap.servers': 'h:1',
      'request.timeout.ms': '5',
    });
    assert.equal(cluster.catalog.settings(MIRROR)?.producerIdTag, 7);
    assert.equal(await alter(cluster, MIRROR, [['request.timeout.ms', 1, null]]), 'NONE');
    assert.deepEqual(
      [...cluster.image.configs(MIRROR_TYPE, MIRROR)],
      [['bootstrap.servers', 'h:1']],
    );
  });

  test('are refused as where the controller is embedded', async () => {
    const cluster = await new TestCluster().withMirror();
    assert.equal(
      await alter(cluster, 'nope', [['request.timeout.ms', 0, '5']]),
      'RESOURCE_NOT_FOUND',
    );
    assert.equal(await alter(cluster, MIRROR, [['bootstrap.servers', 1, null]]), 'INVALID_CONFIG');
    assert.equal(await alter(cluster, MIRROR, [[SOURCE, 0, 'x']]), 'INVALID_REQUEST');
    assert.deepEqual(cluster.trace, []);
  });
});

describe('RemoveTopicsFromMirror', () => {
  async function member(...records: Parameters<typeof topic>[]): Promise<TestCluster> {
    const topics = records.flatMap((record) => topic(...record));
    const cluster = await new TestCluster(...topics).withMirror();
    for (const [name, topicId] of records) {
      await cluster.storeOf(GUEST).writeTopic(name, {
        mirrorName: MIRROR,
        removed: false,
        membershipOffset: 3,
        topicId,
        sourceTopicId: SOURCE_ID,
        finalConfigs: [],
        targetReplicationFactor: 2,
      });
    }
    cluster.trace.length = 0;
    return cluster;
  }

  async function remove(cluster: TestCluster, topics: [string, Uuid?][], more: object = {}) {
    const response = (await cluster.admin().forward(ApiKey.RemoveTopicsFromMirror, {
      mirrorName: MIRROR,
      topics: topics.map(([topicName, topicId]) => ({ topicName, topicId: topicId ?? ZERO_UUID })),
      validatedAtOffset: -1,
      openTransactions: 0,
      ...more,
    } satisfies RemoveTopicsFromMirrorRequest)) as RemoveTopicsFromMirrorResponse;
    return response;
  }

  test('D6: rows with a newer membership; the image shows them as leaving', async () => {
    const cluster = await member(['t', id(1), [GUEST, 1]], ['u', id(2), [GUEST, 1]]);
    const response = await remove(cluster, [['t'], ['u']]);
    assert.equal(response.errorCode, 0);
    assert.deepEqual(
      response.topics.map(({ name, topicId, errorCode }) => [name, topicId, errorCode]),
      [
        ['t', id(1), 0],
        ['u', id(2), 0],
      ],
    );
    assert.deepEqual(cluster.trace, ['row t m.removed with id', 'row u m.removed with id']);
    const membership = cluster.image.membership('t');
    assert.equal(membership?.removed, true);
    assert.equal(membership?.offset, cluster.image.offset);
    assert.equal(cluster.catalog.topic('t')?.targetReplicationFactor, 2);
  });

  test('G24a: the wish about open transactions is in the row, others are refused', async () => {
    const cluster = await member(['t', id(1), [GUEST, 1]], ['u', id(2), [GUEST, 1]]);
    const unknown = await remove(cluster, [['t']], { openTransactions: 2 });
    assert.equal(unknown.errorCode, errors.INVALID_REQUEST.code);
    assert.equal(cluster.catalog.topic('t')?.removed, false);
    assert.equal((await remove(cluster, [['t']], { openTransactions: 1 })).errorCode, 0);
    assert.equal((await remove(cluster, [['u']])).errorCode, 0);
    const wishes = ['t', 'u'].map((name) => {
      const row = cluster.catalog.topic(name);
      return [row?.removed, row?.openTransactions ?? 0];
    });
    assert.deepEqual(wishes, [
      [true, 1],
      [true, 0],
    ]);
  });

  test('S7: the membership is newer even where the metadata stands still', async () => {
    const cluster = await member(['t', id(1), [GUEST, 1]]);
    const row = cluster.catalog.topic('t');
    assert.ok(row !== undefined);
    await cluster.storeOf(GUEST).writeTopic('t', { ...row, membershipOffset: 1_000 });
    await remove(cluster, [['t']]);
    assert.equal(cluster.image.membership('t')?.offset, 1_001);
  });

  test("the topic's own id and the source's both name it, others do not", async () => {
    for (const given of [id(1), SOURCE_ID]) {
      const cluster = await member(['t', id(1), [GUEST, 1]]);
      assert.equal((await remove(cluster, [['t', given]])).errorCode, 0, given);
    }
    const cluster = await member(['t', id(1), [GUEST, 1]]);
    const response = await remove(cluster, [['t', id(77)]]);
    assert.equal(errorName(response.errorCode), 'INCONSISTENT_TOPIC_ID');
    assert.deepEqual(cluster.trace, []);
  });

  test('D7: removing again is a success without a row', async () => {
    const cluster = await member(['t', id(1), [GUEST, 1]]);
    await remove(cluster, [['t']]);
    cluster.trace.length = 0;
    assert.equal((await remove(cluster, [['t']])).errorCode, 0);
    assert.deepEqual(cluster.trace, []);
  });

  test('refusals are per topic, the first of them in the singular fields', async () => {
    const cluster = await member(['t', id(1), [GUEST, 1]]);
    cluster.commit(...topic('native', id(5), [1]));
    const response = await remove(cluster, [['t'], ['native'], ['nope'], ['t']]);
    assert.equal(response.errorCode, response.topics[0]?.errorCode);
    assert.deepEqual(
      response.topics.map(({ name, errorCode }) => [name, errorName(errorCode)]),
      [
        ['t', 'INVALID_REQUEST'],
        ['native', 'INVALID_REQUEST'],
        ['nope', 'UNKNOWN_TOPIC_OR_PARTITION'],
      ],
    );
    assert.deepEqual(cluster.trace, []);
    const other = await remove(cluster, [['t']], { mirrorName: 'other' });
    assert.equal(errorName(other.errorCode), 'INVALID_REQUEST');
  });

  test('A3: a membership that changed after the check is refused', async () => {
    const cluster = await member(['t', id(1), [GUEST, 1]]);
    const response = await remove(cluster, [['t']], { validatedAtOffset: 2 });
    assert.equal(errorName(response.errorCode), 'INVALID_UPDATE_VERSION');
    assert.equal((await remove(cluster, [['t']], { validatedAtOffset: 3 })).errorCode, 0);
  });

  test('an add whose topic was never made is undone', async () => {
    const cluster = await member(['t', id(1), [GUEST, 1]]);
    const row = cluster.catalog.topic('t');
    assert.ok(row !== undefined);
    await cluster.storeOf(GUEST).writeTopic('half', { ...row, topicId: ZERO_UUID });
    cluster.trace.length = 0;
    assert.equal((await remove(cluster, [['half']])).errorCode, 0);
    assert.deepEqual(cluster.trace, ['row half gone']);
    assert.equal(cluster.image.membership('half'), undefined);
  });

  test("G23: another guest's mirror is refused while that guest lives", async () => {
    const cluster = await member(['t', id(1), [GUEST, 1]]);
    cluster.commit(broker(OTHER_GUEST), config(BROKER, `${OTHER_GUEST}`, 'twinlog.guest', 'true'));
    await cluster.storeOf(OTHER_GUEST).claimJobs(MIRROR);
    cluster.trace.length = 0;
    const refused = await remove(cluster, [['t']]);
    assert.equal(errorName(refused.errorCode), 'NOT_COORDINATOR');
    assert.match(refused.errorMessage ?? '', /guest 202/);
    assert.deepEqual(cluster.trace, []);
    cluster.fence(OTHER_GUEST, true);
    assert.equal((await remove(cluster, [['t']])).errorCode, 0);
    assert.deepEqual(cluster.trace, [`row jobs m ${GUEST}`, 'row t m.removed with id']);
  });

  test('requests are worked on one after the other', async () => {
    const cluster = await member(['t', id(1), [GUEST, 1]]);
    const admin = cluster.admin();
    const wish = (mirrorName: string) => ({
      mirrorName,
      config: [{ name: 'bootstrap.servers', value: 'h:1' }],
      skipValidation: true,
    });
    const answers = await Promise.all([
      admin.forward(ApiKey.CreateMirror, wish('same')),
      admin.forward(ApiKey.CreateMirror, wish('same')),
    ]);
    const codes = (answers as CreateMirrorResponse[]).map(({ errorCode }) => errorName(errorCode));
    assert.deepEqual(codes, ['NONE', 'INVALID_REQUEST']);
  });
});
