/**
 * Apache Kafka's kafka-dump-log reads our metadata log: every record of every kind we write is
 * decoded, in order, and means the same to both sides. The log is that of a node with two lives.
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../src/base/logger.ts';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import { nodeRuntime } from '../../src/io/node/node-runtime.ts';
import type { EmbeddedController } from '../../src/metadata/embedded-controller.ts';
import { MetadataLog, openMetadataLog } from '../../src/metadata/metadata-log.ts';
import { type PlacedRecord, placeRecords } from '../../src/metadata/transaction-buffer.ts';
import { DEFAULT_LOG_CONFIG } from '../../src/storage/log-config.ts';
import { LogManager } from '../../src/storage/log-manager.ts';
import {
  createTopics,
  heartbeat,
  id,
  newTopic,
  openController,
  registration,
} from '../metadata/harness.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { removeDirectory, temporaryDirectory } from './processes.ts';
import { tool } from './tools.ts';

const skip = await interopSkipReason();

async function forward(controller: EmbeddedController, apiKey: number, request: unknown) {
  const response = await controller.forward(apiKey, 0, request, { principal: 'User:test' });
  const { errorCode = 0 } = response as { errorCode?: number };
  assert.equal(errorCode, 0, JSON.stringify(response));
}

/** One life: joins, writes something of every kind, stops. */
async function live(logDir: string, incarnation: number): Promise<void> {
  const runtime = nodeRuntime({ logger: silentLogger });
  const logManager = new LogManager(runtime, { logDir, defaultConfig: DEFAULT_LOG_CONFIG });
  logManager.load(() => DEFAULT_LOG_CONFIG);
  const controller = await openController(runtime, openMetadataLog(logManager));
  const wish = { rack: `rack-${incarnation}` };
  const { brokerEpoch } = await controller.registerBroker(registration(0, incarnation, wish));
  await controller.brokerHeartbeat(heartbeat(0, brokerEpoch));
  const mirrorName = `m${incarnation}`;
  const topicId = id(incarnation);
  const topicName = `mirrored-${incarnation}`;
  const configs = [{ name: 'retention.ms', value: '5' }];
  await forward(controller, 19, createTopics([newTopic(`t${incarnation}`, { configs })]));
  await forward(controller, 12790, {
    mirrorName,
    config: [{ name: 'bootstrap.servers', value: 'h:1' }],
    skipValidation: true,
  });
  const added = { topicId, topicName, mirrorName, fullResync: false, numPartitions: 2 };
  await forward(controller, 12791, { topics: [added], validatedAtOffset: -1 });
  const topics = [{ topicId, topicName }];
  const removal = { mirrorName, topics, validatedAtOffset: -1, openTransactions: 0 };
  await forward(controller, 12792, removal);
  await forward(controller, 37, {
    topics: [{ name: topicName, count: 3, assignments: null }],
    timeoutMs: 0,
    validateOnly: false,
  });
  const alteration = { name: 'retention.ms', configOperation: 1, value: null };
  await forward(controller, 44, {
    resources: [{ resourceType: 2, resourceName: `t${incarnation}`, configs: [alteration] }],
    validateOnly: false,
  });
  await forward(controller, 20, {
    topics: [{ name: `t${incarnation}`, topicId: ZERO_UUID }],
    topicNames: [],
    timeoutMs: 0,
  });
  await controller.allocateProducerIds(0, brokerEpoch);
  assert.equal((await controller.electSameLeader(topicId, 0, 0)).error, 0);
  const stop = heartbeat(0, brokerEpoch, { wantShutDown: true });
  await controller.brokerHeartbeat(stop);
  assert.equal((await controller.brokerHeartbeat(stop)).shouldShutDown, true);
  await controller.close();
  await logManager.close();
}

/** What we read: offset and record of the whole log. */
async function ownView(logDir: string): Promise<PlacedRecord[]> {
  const runtime = nodeRuntime({ logger: silentLogger });
  const logManager = new LogManager(runtime, { logDir, defaultConfig: DEFAULT_LOG_CONFIG });
  logManager.load(() => DEFAULT_LOG_CONFIG);
  const log = new MetadataLog(runtime, openMetadataLog(logManager));
  const seen: PlacedRecord[] = [];
  log.forEach(0, log.nextOffset, ({ records, lastOffset }) => {
    seen.push(...placeRecords(records, lastOffset));
  });
  await logManager.close();
  return seen;
}

/** TOPIC_RECORD → TopicRecord. */
function ourName(type: string): string {
  const words = type.toLowerCase().split('_');
  return words.map((word) => word.charAt(0).toUpperCase() + word.slice(1)).join('');
}

interface DumpedRecord {
  readonly type: string;
  readonly version: number;
  readonly data: Readonly<Record<string, unknown>>;
}

function dumpedRecords(output: string): { offset: number; record: DumpedRecord }[] {
  return output.split('\n').flatMap((line) => {
    const match = /^\| offset: (\d+) .* payload: (\{.*\})$/.exec(line);
    if (match === null) return [];
    return [{ offset: Number(match[1]), record: JSON.parse(match[2] as string) as DumpedRecord }];
  });
}

test('kafka-dump-log decodes every record of our metadata log', { skip }, async () => {
  const logDir = temporaryDirectory('metadata-dump');
  try {
    await live(logDir, 1);
    await live(logDir, 2);
    const directory = join(logDir, '__cluster_metadata-0');
    const files = readdirSync(directory).filter((name) => /\.(log|index|timeindex)$/.test(name));
    const paths = files.map((name) => join(directory, name)).join(',');
    const output = await tool('dumpLog', [
      '--cluster-metadata-decoder',
      '--deep-iteration',
      '--files',
      paths,
    ]);
    assert.doesNotMatch(output, /isvalid: false|skipping|[Ee]rror|[Mm]ismatch|corrupt/);
    const leaderChanges = output.match(/LeaderChange: \{.*\}/g);
    assert.deepEqual(
      leaderChanges?.map((text) => JSON.parse(text.slice('LeaderChange: '.length))),
      [1, 2].map(() => ({
        version: 0,
        leaderId: 0,
        voters: [{ voterId: 0 }],
        grantingVoters: [{ voterId: 0 }],
      })),
    );
    const dumped = dumpedRecords(output);
    const own = await ownView(logDir);
    assert.equal(dumped.length, own.length);
    for (const [index, { offset, record }] of dumped.entries()) {
      const ours = own[index];
      assert.ok(ours && ours.record.type !== 'UnknownRecord');
      assert.equal(offset, ours.offset);
      assert.equal(ourName(record.type), ours.record.type);
      assert.equal(record.version, ours.record.version);
      // Tagged fields at their default are left out of the dump.
      const value = ours.record.value as unknown as Readonly<Record<string, unknown>>;
      for (const [name, theirs] of Object.entries(record.data)) {
        const mine = value[name];
        assert.deepEqual(
          theirs,
          typeof mine === 'bigint' ? Number(mine) : mine,
          `${name}@${offset}`,
        );
      }
    }
    const types = new Set(own.map(({ record }) => record.type));
    assert.deepEqual([...types].sort(), [
      'BrokerRegistrationChangeRecord',
      'ConfigRecord',
      'FeatureLevelRecord',
      'PartitionChangeRecord',
      'PartitionRecord',
      'ProducerIdsRecord',
      'RegisterBrokerRecord',
      'RemoveTopicRecord',
      'TopicRecord',
    ]);
  } finally {
    removeDirectory(logDir);
  }
});
