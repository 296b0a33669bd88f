/**
 * A mirrored topic that is deleted here and added again, on two real brokers: its topic id is the
 * same, its leader epoch starts at 0 again, and nothing of its former life holds it up.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type TestContext, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import { nodeRuntime } from '../../src/io/node/node-runtime.ts';
import { errorName } from '../../src/protocol/errors.ts';
import { KafkaConnection } from '../../src/protocol/kafka-connection.ts';
import { ProduceRequest, ProduceResponse } from '../../src/protocol/messages/00-produce.ts';
import {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../../src/protocol/messages/19-create-topics.ts';
import {
  DeleteTopicsRequest,
  DeleteTopicsResponse,
} from '../../src/protocol/messages/20-delete-topics.ts';
import {
  CreateMirrorRequest,
  CreateMirrorResponse,
} from '../../src/protocol/messages/12790-create-mirror.ts';
import {
  AddTopicsToMirrorRequest,
  AddTopicsToMirrorResponse,
} from '../../src/protocol/messages/12791-add-topics-to-mirror.ts';
import {
  RemoveTopicsFromMirrorRequest,
  RemoveTopicsFromMirrorResponse,
} from '../../src/protocol/messages/12792-remove-topics-from-mirror.ts';
import {
  DescribeMirrorsRequest,
  DescribeMirrorsResponse,
} from '../../src/protocol/messages/12795-describe-mirrors.ts';
import { buildRecordBatch } from '../../src/protocol/record.ts';
import { type Broker, startBroker } from '../../src/server/broker.ts';
import { BrokerConfig } from '../../src/server/broker-config.ts';

const TOPIC = 't';
/** Beyond this something hangs, which is what the test is about. */
const BOUND_MS = 20_000;

class Site {
  readonly #directory = mkdtempSync(join(tmpdir(), 'twinlog-again-test-'));
  readonly #runtime = nodeRuntime({ logLevel: 'silent' });
  readonly #config = new BrokerConfig(
    new Map([
      ['log.dirs', this.#directory],
      ['listeners', 'PLAINTEXT://127.0.0.1:0'],
      ['mirror.topic.num.partitions', '2'],
    ]),
  );
  #broker: Broker | undefined;
  #client: KafkaConnection | undefined;

  async start(): Promise<void> {
    this.#broker = await startBroker(this.#runtime, { config: this.#config });
    const { host, port } = this.#broker;
    this.#client = await KafkaConnection.connect(this.#runtime, { host, port, clientId: 'test' });
  }

  async stop(): Promise<void> {
    this.#client?.close();
    await this.#broker?.close();
    this.#broker = undefined;
  }

  async close(): Promise<void> {
    await this.stop();
    rmSync(this.#directory, { recursive: true });
  }

  get client(): KafkaConnection {
    assert.ok(this.#client);
    return this.#client;
  }

  get address(): string {
    return `${this.#broker?.host}:${this.#broker?.port}`;
  }

  async produce(): Promise<string> {
    const value = Buffer.from('v');
    const records = buildRecordBatch({ records: [{ key: null, value, timestamp: 1n }] });
    const topicData = [{ name: TOPIC, partitionData: [{ index: 0, records }] }];
    const request = { acks: -1, timeoutMs: 5000, topicData };
    const options = { maxVersion: 12 };
    const answer = await this.client.send(ProduceRequest, ProduceResponse, request, options);
    return errorName(answer.responses[0]?.partitionResponses[0]?.errorCode ?? -1);
  }

  async add(): Promise<number> {
    const topics = [{ topicId: ZERO_UUID, topicName: TOPIC, mirrorName: 'm' }];
    const request = { topics };
    return (await this.client.send(AddTopicsToMirrorRequest, AddTopicsToMirrorResponse, request))
      .errorCode;
  }

  async remove(): Promise<number> {
    const request = { mirrorName: 'm', topics: [{ topicId: ZERO_UUID, topicName: TOPIC }] };
    return (
      await this.client.send(RemoveTopicsFromMirrorRequest, RemoveTopicsFromMirrorResponse, request)
    ).errorCode;
  }

  async delete(): Promise<number> {
    const request = {
      topics: [{ name: TOPIC, topicId: ZERO_UUID }],
      topicNames: [TOPIC],
      timeoutMs: 5000,
    };
    const { responses } = await this.client.send(
      DeleteTopicsRequest,
      DeleteTopicsResponse,
      request,
    );
    return responses[0]?.errorCode ?? -1;
  }

  /** Waits until the partition is shown in a state, at an offset where one is given. */
  async until(state: string, here?: number): Promise<void> {
    const deadline = Date.now() + BOUND_MS;
    for (;;) {
      const request = { mirrorNames: ['m'] };
      const { mirrors } = await this.client.send(
        DescribeMirrorsRequest,
        DescribeMirrorsResponse,
        request,
      );
      const shown = mirrors[0]?.topics[0]?.partitions[0];
      if (shown?.state === state && (here ?? shown.destinationOffset) === shown.destinationOffset)
        return;
      assert.ok(Date.now() < deadline, `${state} expected, shown is ${JSON.stringify(shown)}`);
      await sleep(20);
    }
  }
}

async function sites(t: TestContext): Promise<{ source: Site; here: Site }> {
  const [source, here] = [new Site(), new Site()];
  t.after(() => Promise.all([source.close(), here.close()]));
  await Promise.all([source.start(), here.start()]);
  const topic = { name: TOPIC, numPartitions: 1, replicationFactor: 1 };
  const topics = [{ ...topic, assignments: [], configs: [] }];
  await source.client.send(CreateTopicsRequest, CreateTopicsResponse, { topics, timeoutMs: 5000 });
  for (let record = 0; record < 3; record++) assert.equal(await source.produce(), 'NONE');
  const config = [{ name: 'bootstrap.servers', value: source.address }];
  const request = { mirrorName: 'm', config };
  const made = await here.client.send(CreateMirrorRequest, CreateMirrorResponse, request);
  assert.equal(made.errorCode, 0, made.errorMessage ?? '');
  assert.equal(await here.add(), 0);
  await here.until('MIRRORING', 3);
  return { source, here };
}

for (const stopsFirst of [true, false]) {
  const how = stopsFirst ? 'after its stop' : 'while it is mirrored';
  test(`B2 S7: a topic deleted ${how} and added again is mirrored anew`, async (t) => {
    const { source, here } = await sites(t);
    // Each restart is a new leader epoch, which the row remembers.
    for (let restart = 0; restart < 2; restart++) {
      await here.stop();
      await here.start();
      await here.until('MIRRORING', 3);
    }
    if (stopsFirst) {
      assert.equal(await here.remove(), 0);
      await here.until('STOPPED');
      assert.equal(await here.produce(), 'NONE');
    }
    assert.equal(await here.delete(), 0);
    assert.equal(await here.add(), 0);
    await here.until('MIRRORING', 3);
    assert.equal(await source.produce(), 'NONE');
    await here.until('MIRRORING', 4);
    assert.equal(await here.produce(), 'POLICY_VIOLATION');
    assert.equal(await here.remove(), 0);
    await here.until('STOPPED');
    assert.equal(await here.produce(), 'NONE');
  });
}
