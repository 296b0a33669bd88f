/**
 * Group offsets in a guest's Apache Kafka cluster of two brokers: what the sink reads, commits and
 * lowers in the coordinators of real groups, and that members of both protocols go on from there.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { parseUuid } from '../../src/base/uuid.ts';
import { processRuntime } from '../../src/cli/broker-process.ts';
import type { ClusterClient } from '../../src/guest/cluster-client.ts';
import { ClusterGroupOffsetSink, groupOffsetClient } from '../../src/guest/group-offset-sink.ts';
import type { OffsetToCommit } from '../../src/mirror/group-offsets/ports.ts';
import { type KafkaCluster, startHost } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import { javaClient } from './clusters.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { until } from './mirror-watch.ts';

const skip = await interopSkipReason();
const TOPIC = 'guest-groups';
const RECORDS = 40;
/** So many that both brokers coordinate some of them. */
const GROUPS = Array.from({ length: 12 }, (_, index) => `group-${index}`);

let kafka: KafkaCluster;
let client: ClusterClient;
let sink: ClusterGroupOffsetSink;
let topicId: NonNullable<ReturnType<typeof parseUuid>>;

function at(partition: number, offset: number, metadata = ''): OffsetToCommit {
  return { topic: TOPIC, topicId, partition, offset, metadata };
}

async function offsetsOf(group: string): Promise<Record<string, number>> {
  return await (await javaClient()).groupOffsets(kafka.bootstrap, group);
}

async function commit(group: string, ...offsets: OffsetToCommit[]): Promise<void> {
  const result = await sink.commit(group, () => offsets);
  assert.deepEqual(result, { kind: 'done', failed: [] }, group);
}

/** The same until a coordinator that moves or is being made has settled. */
async function commitSoon(group: string, ...offsets: OffsetToCommit[]): Promise<void> {
  await until(`commit of ${group}`, async () => {
    await commit(group, ...offsets);
    return true;
  });
}

if (skip === false) {
  before(async () => {
    await ensureAppCds();
    const properties = { 'offsets.topic.num.partitions': '4' };
    kafka = await startHost({ name: 'guest-groups', brokers: 2, controller: 'first', properties });
    const java = await javaClient();
    await java.createTopic(kafka.bootstrap, TOPIC, 2);
    await java.openProducer(kafka.bootstrap, 'guest-groups');
    const lists = Array.from({ length: RECORDS }, (_, index) =>
      [0, 1].map((partition) => ({ topic: TOPIC, partition, value: String(index) })),
    );
    await java.produceAll('guest-groups', ...lists);
    await java.closeProducer('guest-groups');
    const { topicId: text } = await java.describeTopic(kafka.bootstrap, TOPIC);
    topicId = parseUuid(text) ?? assert.fail(text);
    const addresses = kafka.brokers.map(({ host, port }) => ({ host, port }));
    client = groupOffsetClient(processRuntime('silent'), 9, () => addresses);
    sink = new ClusterGroupOffsetSink(processRuntime('silent'), {
      cluster: client,
      brokerIds: () => kafka.brokers.filter((node) => node.isRunning).map(({ id }) => id),
    });
  });
  after(async () => {
    client?.close();
    await kafka?.destroy();
  });
}

test('Y6: groups that do not exist are empty, and a commit makes them', { skip }, async () => {
  const none = await until('an answer', async () => {
    const held = await sink.read(['group-0', 'nobody']);
    return [...held.values()].every(({ errorCode }) => errorCode === 0) ? held : undefined;
  });
  const empty = { errorCode: 0, hasMembers: false, offsets: new Map() };
  assert.deepEqual(
    [...none],
    [
      ['group-0', empty],
      ['nobody', empty],
    ],
  );
  for (const [index, group] of GROUPS.entries()) {
    await commitSoon(group, at(0, index), at(1, 2 * index, `note ${index}`));
  }
  const read = await until('a fresh list of groups', async () => {
    const held = await sink.read(GROUPS);
    return [...held.values()].every(({ offsets }) => offsets.size === 2) ? held : undefined;
  });
  for (const [index, group] of GROUPS.entries()) {
    assert.deepEqual(read.get(group), {
      errorCode: 0,
      hasMembers: false,
      offsets: new Map([
        [`${TOPIC}-0`, { offset: index, metadata: '' }],
        [`${TOPIC}-1`, { offset: 2 * index, metadata: `note ${index}` }],
      ]),
    });
    assert.deepEqual(await offsetsOf(group), { [`${TOPIC}-0`]: index, [`${TOPIC}-1`]: 2 * index });
  }
});

test('Y6: what is wanted is asked last; nothing wanted, nothing written', { skip }, async () => {
  assert.deepEqual(await sink.commit('unborn', () => []), { kind: 'done', failed: [] });
  const listed = await (await javaClient()).listGroups(kafka.bootstrap);
  assert.deepEqual(
    listed.filter(({ group }) => group === 'unborn'),
    [],
  );
});

for (const protocol of ['classic', 'consumer']) {
  test(`Y6 G27: ${protocol} members go on where it was committed`, { skip }, async () => {
    const java = await javaClient();
    const group = `member-${protocol}`;
    await commitSoon(group, at(0, 31), at(1, 17));
    const config = { 'group.protocol': protocol };
    await java.openMember(kafka.bootstrap, group, group, TOPIC, config);
    const read = await java.readAsMember(group, 2 * RECORDS - 31 - 17);
    const firsts = [0, 1].map((each) => read.find(({ partition }) => partition === each)?.offset);
    assert.deepEqual(firsts, [31, 17]);

    const held = await until('a list with the member', async () => {
      const found = (await sink.read([group])).get(group);
      return found?.hasMembers === true ? found : undefined;
    });
    assert.deepEqual(held.errorCode, 0);
    assert.deepEqual(await sink.commit(group, () => [at(0, 3)]), { kind: 'members' });
    const lowered = await sink.lower(at(0, 0), RECORDS - 1);
    const left = 'it has members, which commit for themselves';
    assert.deepEqual(lowered, { errorCode: 0, lowered: [{ groupId: group, from: RECORDS, left }] });
    await java.closeMember(group);
    await commit(group, at(0, 3));
    assert.deepEqual(await offsetsOf(group), { [`${TOPIC}-0`]: 3, [`${TOPIC}-1`]: RECORDS });
  });
}

test('G32 B1: offsets above a cut are lowered, partition by partition', { skip }, async () => {
  const [first, second] = await Promise.all([sink.lower(at(0, 0), 9), sink.lower(at(1, 0), 20)]);
  const byGroup = (a: { groupId: string }, b: { groupId: string }) =>
    a.groupId < b.groupId ? -1 : 1;
  assert.deepEqual(
    { ...first, lowered: [...first.lowered].sort(byGroup) },
    {
      errorCode: 0,
      lowered: [
        { groupId: 'group-10', from: 10 },
        { groupId: 'group-11', from: 11 },
      ],
    },
  );
  assert.deepEqual([...second.lowered].sort(byGroup), [
    { groupId: 'group-11', from: 22 },
    { groupId: 'member-classic', from: RECORDS },
    { groupId: 'member-consumer', from: RECORDS },
  ]);
  assert.deepEqual(await offsetsOf('group-11'), { [`${TOPIC}-0`]: 9, [`${TOPIC}-1`]: 20 });
  assert.deepEqual(await offsetsOf('group-10'), { [`${TOPIC}-0`]: 9, [`${TOPIC}-1`]: 20 });
  assert.deepEqual(await offsetsOf('group-9'), { [`${TOPIC}-0`]: 9, [`${TOPIC}-1`]: 18 });
  assert.deepEqual(await sink.lower(at(0, 0), 9), { errorCode: 0, lowered: [] });
});

test('Y6 G28: coordinators that move are found again', { skip }, async () => {
  await kafka.broker(2).kill9();
  for (const [index, group] of GROUPS.entries()) await commitSoon(group, at(0, 5 + index));
  const held = await until('all groups from the broker that is left', async () => {
    const found = await sink.read(GROUPS);
    return [...found.values()].every(
      ({ errorCode, offsets }) => errorCode === 0 && offsets.size > 0,
    )
      ? found
      : undefined;
  });
  assert.deepEqual(
    GROUPS.map((group) => held.get(group)?.offsets.get(`${TOPIC}-0`)?.offset),
    GROUPS.map((_, index) => 5 + index),
  );
});
