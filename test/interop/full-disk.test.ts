/**
 * The disk of a twinlog process is full: whoever writes is told, everybody else is served, and
 * nothing that was acknowledged is lost, however the process goes on.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { processRuntime } from '../../src/cli/broker-process.ts';
import { errorName } from '../../src/protocol/errors.ts';
import { KafkaConnection } from '../../src/protocol/kafka-connection.ts';
import { ProduceRequest, ProduceResponse } from '../../src/protocol/messages/00-produce.ts';
import {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../../src/protocol/messages/19-create-topics.ts';
import { buildRecordBatch } from '../../src/protocol/record.ts';
import { freePort } from './processes.ts';
import { RawClient } from './raw-client.ts';
import { readTopic } from './raw-log.ts';
import { brokerOnSmallDisk, type SmallDisk } from './small-disk.ts';
import type { TwinlogBroker } from './twinlog.ts';

const BATCH_BYTES = 100_000;
const ROOM_BYTES = 1_500_000;
const MAX_BATCHES = 100;
const MAX_TOPICS = 500;

/** Produces batches of incompressible size; every acknowledged one is remembered. */
class Writer {
  readonly acknowledged = new Map<string, number>();
  readonly #broker: TwinlogBroker;
  #connection: KafkaConnection | undefined;

  constructor(broker: TwinlogBroker) {
    this.#broker = broker;
  }

  async connection(): Promise<KafkaConnection> {
    if (this.#connection === undefined || this.#connection.ended !== undefined) {
      const { host, port } = this.#broker;
      const options = { host, port, clientId: 'writer' };
      this.#connection = await KafkaConnection.connect(processRuntime('silent'), options);
    }
    return this.#connection;
  }

  close(): void {
    this.#connection?.close();
  }

  async createTopics(...names: string[]): Promise<string[]> {
    const topics = names.map((name) => ({
      name,
      numPartitions: 1,
      replicationFactor: 1,
      assignments: [],
      configs: [],
    }));
    const request = { topics, timeoutMs: 10_000 };
    const connection = await this.connection();
    const answer = await connection.send(CreateTopicsRequest, CreateTopicsResponse, request);
    return answer.topics.map(({ errorCode }) => errorName(errorCode));
  }

  async write(topic: string): Promise<string> {
    const value = Buffer.alloc(BATCH_BYTES, topic);
    const records = buildRecordBatch({
      baseOffset: 0,
      partitionLeaderEpoch: -1,
      records: [{ key: null, value, timestamp: 1 }],
    });
    const request = {
      transactionalId: null,
      acks: -1,
      timeoutMs: 5_000,
      topicData: [{ name: topic, partitionData: [{ index: 0, records }] }],
    };
    const connection = await this.connection();
    const options = { maxVersion: 9 };
    const answer = await connection.send(ProduceRequest, ProduceResponse, request, options);
    const [partition] = answer.responses[0]?.partitionResponses ?? [];
    const error = errorName(partition?.errorCode ?? -1);
    if (error === 'NONE') {
      const before = this.acknowledged.get(topic) ?? 0;
      assert.equal(partition?.baseOffset, before, 'offsets follow each other');
      this.acknowledged.set(topic, before + 1);
    }
    return error;
  }

  /** Every acknowledged batch is there, whole, and nothing else. */
  async assertKept(...topics: string[]): Promise<void> {
    for (const topic of topics) {
      const [partition] = (await readTopic(this.#broker.bootstrap, topic)).partitions;
      assert.equal(partition?.batches.length, this.acknowledged.get(topic) ?? 0, topic);
      for (const batch of partition?.batches ?? []) {
        assert.ok(batch.crcIsValid);
        assert.ok(batch.records.includes(Buffer.alloc(BATCH_BYTES, topic)));
      }
    }
  }
}

/** Writes until the disk is full; answers the error that said so. */
async function writeUntilFull(writer: Writer, topic: string): Promise<string> {
  for (let batch = 0; batch < MAX_BATCHES; batch++) {
    const error = await writer.write(topic);
    if (error !== 'NONE') return error;
  }
  throw new Error('the disk was not full');
}

async function started(name: string): Promise<{ disk: SmallDisk; writer: Writer }> {
  const disk = await brokerOnSmallDisk({ name }, await freePort());
  await disk.broker.start();
  const writer = new Writer(disk.broker);
  assert.deepEqual(await writer.createTopics('full', 'other', 'third'), ['NONE', 'NONE', 'NONE']);
  for (const topic of ['full', 'other', 'third']) assert.equal(await writer.write(topic), 'NONE');
  return { disk, writer };
}

test('a full disk fails writes with KAFKA_STORAGE_ERROR and loses nothing', async (t) => {
  const { disk, writer } = await started('full-disk');
  t.after(() => disk.destroy());
  t.after(() => writer.close());
  t.diagnostic(disk.kind);
  const { broker } = disk;
  const { pid } = broker;
  await using bystander = await RawClient.connect(broker.host, broker.port);
  await disk.fill(ROOM_BYTES);
  assert.equal(await writeUntilFull(writer, 'full'), 'KAFKA_STORAGE_ERROR');
  assert.match(readFileSync(broker.log, 'utf8'), /"topic":"full".*(ENOSPC|EFBIG)/);
  assert.equal(await writer.write('full'), 'KAFKA_STORAGE_ERROR');
  assert.equal((await bystander.metadata(['other'])).topics[0]?.error, 0);
  await writer.assertKept('other', 'third');
  await disk.free();
  assert.equal(await writer.write('third'), 'NONE');
  await writer.assertKept('other', 'third');
  broker.checkAlive();
  assert.equal(broker.pid, pid);
  await broker.stop();
  await broker.start();
  await writer.assertKept('full', 'other', 'third');
  for (const topic of ['full', 'other', 'third']) assert.equal(await writer.write(topic), 'NONE');
  await writer.assertKept('full', 'other', 'third');
});

test('killed with a full disk, the broker has everything when there is room again', async (t) => {
  const { disk, writer } = await started('full-disk-kill');
  t.after(() => disk.destroy());
  t.after(() => writer.close());
  const { broker } = disk;
  await disk.fill(ROOM_BYTES);
  assert.equal(await writeUntilFull(writer, 'full'), 'KAFKA_STORAGE_ERROR');
  await broker.kill9();
  if (disk.kind === 'tmpfs') {
    broker.launch();
    assert.equal((await broker.exited()).code, 1);
    assert.match(readFileSync(broker.log, 'utf8'), /^twinlog: The broker cannot start: .*ENOSPC/m);
    await disk.free();
  }
  await broker.start();
  await writer.assertKept('full', 'other', 'third');
  for (const topic of ['full', 'other', 'third']) assert.equal(await writer.write(topic), 'NONE');
});

test('a metadata log that cannot be written stops the process, which says so', async (t) => {
  const { disk, writer } = await started('full-disk-metadata');
  t.after(() => disk.destroy());
  t.after(() => writer.close());
  if (disk.kind !== 'tmpfs') return t.skip('a limit on file size does not reach so small a file');
  const { broker } = disk;
  await disk.fill(0);
  const created: string[] = [];
  for (let topic = 0; broker.isRunning && topic < MAX_TOPICS; topic++) {
    const name = `new-${topic}`;
    const [error] = await writer.createTopics(name).catch((): string[] => []);
    if (error === 'NONE') created.push(name);
  }
  assert.equal((await broker.exited()).code, 1);
  assert.match(readFileSync(broker.log, 'utf8'), /^twinlog: the broker stops: .*ENOSPC/m);
  await disk.free();
  await broker.start();
  await writer.assertKept('full', 'other', 'third');
  for (const name of created) assert.equal(await writer.write(name), 'NONE');
});
