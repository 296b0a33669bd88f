/**
 * Clients, guests and rights of secured Apache Kafka clusters, for the tests of guests in them.
 *
 * Settings are Kafka's own: one record of them serves connections of this process, the files of
 * commands and Java clients. Without settings a connection is to a PLAINTEXT listener, where tests
 * are a super user. `grantChecked` grants what `guest check` prints, and nothing else.
 */
import assert from 'node:assert/strict';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { nodeRuntime } from '../../src/io/node/node-runtime.ts';
import {
  type ConnectionSecurity,
  connectionSecurity,
} from '../../src/protocol/connection-security.ts';
import { KafkaConnection } from '../../src/protocol/kafka-connection.ts';
import { ProduceRequest, ProduceResponse } from '../../src/protocol/messages/00-produce.ts';
import { FetchRequest, FetchResponse } from '../../src/protocol/messages/01-fetch.ts';
import { MetadataRequest, MetadataResponse } from '../../src/protocol/messages/03-metadata.ts';
import {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../../src/protocol/messages/19-create-topics.ts';
import { buildRecordBatch } from '../../src/protocol/record.ts';
import { grantAll } from './acls.ts';
import {
  AUTHORIZER,
  type ClusterSecurity,
  type KafkaCluster,
  pemStores,
  plainJaas,
  scramJaas,
} from './apache-kafka.ts';
import { GUEST_ID } from './guest.ts';
import type { RunResult } from './processes.ts';
import { runTool } from './tools.ts';
import { runTwinlog } from './twinlog.ts';

/** Passwords; each of them says that it is none for a log. */
export const USERS = {
  admin: 'admin-hush',
  guest: 'guest-hush',
  alice: 'alice-hush',
  reader: 'reader-hush',
};
/** A name in {@link USERS}. */
export type User = keyof typeof USERS;

/** How a client connects, by Kafka's names. */
export type ClientSettings = Readonly<Record<string, string>>;

/** What lies behind a missing right is seen when that is there. */
const CHECK_ROUNDS = 3;

const runtime = nodeRuntime({ logLevel: 'silent' });
let files = 0;

/** A client with user and password. */
export function saslClient(
  { truststore }: ClusterSecurity,
  user: User,
  mechanism: 'PLAIN' | 'SCRAM-SHA-512' = 'SCRAM-SHA-512',
  password: string = USERS[user],
): ClientSettings {
  const known = { ...USERS, [user]: password };
  const jaas = mechanism === 'PLAIN' ? plainJaas(user, known) : scramJaas(user, known);
  return {
    'security.protocol': 'SASL_SSL',
    'sasl.mechanism': mechanism,
    'sasl.jaas.config': jaas,
    ...pemStores(truststore),
  };
}

/** A client with a certificate, or without one. */
export function tlsClient(truststore: string, keystore?: string): ClientSettings {
  return { 'security.protocol': 'SSL', ...pemStores(truststore, keystore) };
}

/** A file with the settings, as Kafka's tools and ours take it. */
export function settingsFile(directory: string, settings: ClientSettings): string {
  const path = join(directory, `client-${++files}.properties`);
  const lines = Object.entries(settings).map(([name, value]) => `${name}=${value}\n`);
  writeFileSync(path, lines.join(''));
  return path;
}

/** What the settings say of security. */
export function securityOf(settings: ClientSettings): ConnectionSecurity | undefined {
  return connectionSecurity({
    value: (name) => settings[name],
    readFile: (path) => readFileSync(path),
  });
}

/** Runs `body` with a connection; without settings it is to a PLAINTEXT listener. */
export async function connected<T>(
  port: number | undefined,
  settings: ClientSettings | undefined,
  body: (connection: KafkaConnection) => Promise<T>,
): Promise<T> {
  const connection = await KafkaConnection.connect(runtime, {
    host: '127.0.0.1',
    port: port ?? 0,
    clientId: 'test',
    security: settings === undefined ? undefined : securityOf(settings),
  });
  try {
    return await body(connection);
  } finally {
    connection.close();
  }
}

/** Creates a topic of one partition and one replica. */
export async function createTopic(port: number | undefined, name: string): Promise<void> {
  const topic = { name, numPartitions: 1, replicationFactor: 1, assignments: [], configs: [] };
  const { topics } = await connected(port, undefined, (connection) =>
    connection.send(CreateTopicsRequest, CreateTopicsResponse, {
      topics: [topic],
      timeoutMs: 10_000,
      validateOnly: false,
    }),
  );
  assert.equal(topics[0]?.errorCode, 0);
}

/** Writes `value 0` and so on in a batch each; the offset of the first, or the error as a text. */
export function produce(
  port: number | undefined,
  topic: string,
  count: number,
): Promise<number | string> {
  return connected(port, undefined, async (connection) => {
    let first: number | undefined;
    for (let i = 0; i < count; i++) {
      const value = Buffer.from(`value ${i}`);
      const records = buildRecordBatch({
        records: [{ key: null, value, timestamp: Date.now(), headers: [] }],
        producerId: -1n,
        producerEpoch: -1,
        baseSequence: -1,
      });
      const { responses } = await connection.send(
        ProduceRequest,
        ProduceResponse,
        {
          transactionalId: null,
          acks: -1,
          timeoutMs: 10_000,
          topicData: [{ name: topic, partitionData: [{ index: 0, records }] }],
        },
        { maxVersion: 12 },
      );
      const answer = responses[0]?.partitionResponses[0];
      if (answer?.errorCode !== 0) return `error ${answer?.errorCode}`;
      first ??= Number(answer.baseOffset);
    }
    return first ?? -1;
  });
}

/** Error code and bytes of a read from the beginning. */
export function readFrom(port: number, settings: ClientSettings, topic: string) {
  return connected(port, settings, async (connection) => {
    const partition = { partition: 0, fetchOffset: 0, partitionMaxBytes: 1_000_000 };
    const { responses } = await connection.send(
      FetchRequest,
      FetchResponse,
      {
        maxWaitMs: 100,
        minBytes: 1,
        maxBytes: 1_000_000,
        isolationLevel: 0,
        topics: [{ topic, partitions: [partition] }],
        forgottenTopicsData: [],
      },
      { maxVersion: 12 },
    );
    const answer = responses[0]?.partitions[0];
    return { errorCode: answer?.errorCode, bytes: answer?.records?.length ?? 0 };
  });
}

/** Every topic that the client sees. */
export function topicsSeen(port: number, settings: ClientSettings): Promise<string[]> {
  return connected(port, settings, async (connection) => {
    const all = { topics: null, allowAutoTopicCreation: false };
    const { topics } = await connection.send(MetadataRequest, MetadataResponse, all);
    return topics.map(({ name }) => name ?? '').sort();
  });
}

/** What `count` times {@link produce} wrote, as Java's console consumer reads it. */
export async function readByJava(
  port: number,
  topic: string,
  file: string,
  count: number,
  timeoutMs = 20_000,
): Promise<RunResult & { readonly values: readonly string[] }> {
  const args = ['--bootstrap-server', `127.0.0.1:${port}`, '--topic', topic, '--partition', '0'];
  const result = await runTool('consoleConsumer', [
    ...[...args, '--from-beginning', '--max-messages', String(count)],
    ...['--timeout-ms', String(timeoutMs), '--consumer.config', file],
  ]);
  const values = result.stdout.split('\n').filter((line) => line.startsWith('value '));
  return { ...result, values };
}

/** The values of {@link produce}. */
export function valuesUpTo(count: number): string[] {
  return Array.from({ length: count }, (_, i) => `value ${i}`);
}

/** Runs `guest check` as the client of this file. */
export function checkAs(
  cluster: KafkaCluster,
  file: string,
  ...more: readonly string[]
): Promise<RunResult> {
  return runTwinlog([
    ...['guest', 'check', '--bootstrap-controller', cluster.controllerBootstrap],
    ...['--command-config', file, '--node-id', String(GUEST_ID), '--listener', 'SECURE', ...more],
  ]);
}

/** Grants what the check prints until it has nothing to say; all that it printed. */
export async function grantChecked(
  cluster: KafkaCluster,
  file: string,
  ...more: readonly string[]
): Promise<string> {
  let printed = '';
  for (let round = 0; ; round++) {
    const { code, stdout } = await checkAs(cluster, file, ...more);
    printed += stdout;
    const granted = await grantAll(cluster.brokers[0]?.port ?? 0, stdout);
    if (granted === 0 || round === CHECK_ROUNDS) {
      assert.equal(code, 0, stdout);
      return printed;
    }
    assert.ok(round > 0 || code === 1, stdout);
  }
}

/** Where a guest listens, and with what it proves who it is. */
export interface SecuredGuest {
  readonly security: ClusterSecurity;
  /** Of the PLAINTEXT listener. */
  readonly port: number;
  /** Of the listener SECURE. */
  readonly securePort: number;
}

/** The settings of a guest of a cluster that `startKafka` secured. */
export function guestSettings({ security, port, securePort }: SecuredGuest): ClientSettings {
  const { protocol = 'SASL_SSL', keystore, truststore } = security;
  const name = 'listener.name.secure';
  const plain = 'PLAINTEXT:PLAINTEXT';
  const common = {
    listeners: `PLAINTEXT://127.0.0.1:${port},SECURE://127.0.0.1:${securePort}`,
    'listener.security.protocol.map': `${plain},SECURE:${protocol},CONTROLLER:${protocol}`,
    'inter.broker.listener.name': 'SECURE',
    'controller.listener.names': 'CONTROLLER',
    ...pemStores(truststore, keystore),
    ...AUTHORIZER,
  };
  if (protocol === 'SSL') return { ...common, 'ssl.client.auth': 'required' };
  return {
    ...common,
    'sasl.mechanism.inter.broker.protocol': 'SCRAM-SHA-512',
    'sasl.mechanism.controller.protocol': 'PLAIN',
    'listener.name.controller.plain.sasl.jaas.config': plainJaas('guest', USERS),
    [`${name}.sasl.enabled.mechanisms`]: 'PLAIN,SCRAM-SHA-512',
    [`${name}.plain.sasl.jaas.config`]: plainJaas('guest', USERS),
    [`${name}.scram-sha-512.sasl.jaas.config`]: scramJaas('guest', USERS),
  };
}
