/**
 * A guest mirrors a twinlog into a real Apache Kafka cluster and takes the consumer groups along:
 * their members, of both protocols, go on in the cluster's own coordinators after the failover.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { type KafkaCluster, startHost } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import { javaClient } from './clusters.ts';
import { startGuest } from './guest.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { awaitState, until } from './mirror-watch.ts';
import { startTwinlog, type TwinlogBroker } from './twinlog.ts';

const skip = await interopSkipReason();
const MIRROR = 'dc1';
const TOPIC = 'guest-app';
const KEY = `${TOPIC}-0`;
const RECORDS = 30;
/** Where each group is; the last one beyond what is mirrored. */
const GROUPS = { classic: 11, consumer: 22, beyond: 9_999 };

let source: TwinlogBroker;
let kafka: KafkaCluster;
let guest: TwinlogBroker;

async function offsetOf(group: string): Promise<number | undefined> {
  return (await (await javaClient()).groupOffsets(kafka.bootstrap, group))[KEY];
}

async function awaitOffset(group: string, offset: number): Promise<void> {
  let seen: number | undefined;
  const look = async (): Promise<true | undefined> => {
    seen = await offsetOf(group);
    return seen === offset ? true : undefined;
  };
  await until(`${group} at ${offset}`, look, 20_000).catch((error: Error) => {
    throw new Error(`${error.message}: it is at ${seen}`, { cause: error });
  });
}

if (skip === false) {
  before(async () => {
    await ensureAppCds();
    source = await startTwinlog({ name: 'guest-source' });
    kafka = await startHost({ name: 'guest-host' });
    guest = await startGuest({ name: 'guest-of-host', cluster: kafka });
    const java = await javaClient();
    await java.createTopic(source.bootstrap, TOPIC, 1);
    await java.openProducer(source.bootstrap, 'writer');
    const values = Array.from({ length: RECORDS }, (_, index) => String(index));
    await java.produceAll('writer', ...values.map((value) => [{ topic: TOPIC, value }]));
    await java.closeProducer('writer');
    for (const [group, offset] of Object.entries(GROUPS)) {
      await java.commitOffsets(source.bootstrap, group, TOPIC, { 0: offset });
    }
    const interval = 'mirror.group.offset.sync.interval.ms=200';
    const settings = ['--source', source.bootstrap, '--config', interval];
    await guest.mirrors('create', MIRROR, ...settings);
    await guest.mirrors('add', MIRROR, TOPIC);
    await awaitState(guest, MIRROR, TOPIC, 'MIRRORING');
  });
  after(async () => {
    await guest?.destroy();
    await kafka?.destroy();
    await source?.destroy();
  });
}

test('Y6 G23: the groups of the source are groups of the cluster', { skip }, async () => {
  await awaitOffset('classic', GROUPS.classic);
  await awaitOffset('consumer', GROUPS.consumer);
  await awaitOffset('beyond', RECORDS);
});

test('Y6 G27: members of both protocols go on after the failover', { skip }, async () => {
  const java = await javaClient();
  await guest.mirrors('remove', MIRROR, TOPIC);
  await java.commitOffsets(source.bootstrap, 'classic', TOPIC, { 0: 1 });
  for (const protocol of ['classic', 'consumer'] as const) {
    const config = { 'group.protocol': protocol };
    await java.openMember(kafka.bootstrap, protocol, protocol, TOPIC, config);
    const read = await java.readAsMember(protocol, RECORDS - GROUPS[protocol]);
    const wanted = Array.from({ length: RECORDS }, (_, index) => String(index));
    assert.deepEqual(
      read.map(({ value }) => value?.toString()),
      wanted.slice(GROUPS[protocol]),
    );
    await java.closeMember(protocol);
    assert.equal(await offsetOf(protocol), RECORDS);
  }
});
