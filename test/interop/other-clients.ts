/**
 * The clients under test that are not Java: franz-go and librdkafka as programs of their own,
 * kafkajs in this process. Built or installed once into the cache.
 *
 * `availableClients` leaves out what this machine has no toolchain for, loudly; with CI=true that
 * is a failure.
 */
import { join } from 'node:path';
import { buildOnce, CACHE, contentKey } from './cache.ts';
import type { Attempt, ClientRecord, ClientUnderTest } from './client.ts';
import type { JavaClient } from './java-client.ts';
import { unavailable } from './kafka-jars.ts';
import { kafkajsClient } from './kafkajs-client.ts';
import { isInstalled, runOrThrow } from './processes.ts';

const HERE = import.meta.dirname;
const BUILD_TIMEOUT_MS = 200_000;

type WireRecord = [
  partition: number,
  offset: number,
  timestamp: number,
  key: string | null,
  value: string | null,
  headers: [string, string | null][],
];

const decode = (text: string | null): Buffer | null =>
  text === null ? null : Buffer.from(text, 'base64');

function parseRecords(output: string): ClientRecord[] {
  const lines = output.split('\n').filter((line) => line !== '');
  const records = lines.map((line): ClientRecord => {
    const [partition, offset, timestamp, key, value, headers] = JSON.parse(line) as WireRecord;
    return {
      partition,
      offset,
      timestamp,
      key: decode(key),
      value: decode(value),
      headers: headers.map(([name, bytes]) => [name, decode(bytes)] as const),
    };
  });
  // Order within a partition is the client's and must not be repaired; stable by partition only.
  return records.sort((a, b) => a.partition - b.partition);
}

/** A client that is a program taking `read` and `produce`. */
function programClient(name: string, command: string, args: readonly string[]): ClientUnderTest {
  const call = async (...more: string[]): Promise<string> =>
    (await runOrThrow(command, [...args, ...more], { timeoutMs: 60_000 })).stdout;
  return {
    name,
    keepsHeaderOrder: true,
    readAll: async (bootstrap, topic, isolation, { maxBytes } = {}) => {
      const limit = maxBytes === undefined ? [] : [String(maxBytes)];
      return parseRecords(await call('read', bootstrap, topic, isolation, ...limit));
    },
    tryProduce: async (bootstrap, topic) =>
      JSON.parse(await call('produce', bootstrap, topic)) as Attempt,
  };
}

/** franz-go, compiled when its source has changed; undefined without a Go toolchain. */
export async function franzGo(): Promise<ClientUnderTest | undefined> {
  if (!(await isInstalled('go', 'version'))) return undefined;
  const source = join(HERE, 'go');
  const files = ['main.go', 'go.mod', 'go.sum'].map((name) => join(source, name));
  const target = join(CACHE, 'interop', `franz-go-${contentKey(files)}`);
  const program = await buildOnce(target, async (temporary) => {
    const options = { cwd: source, timeoutMs: BUILD_TIMEOUT_MS };
    await runOrThrow('go', ['build', '-o', temporary, '.'], options);
  });
  return programClient('franz-go', program, []);
}

/** How to run client.py with librdkafka beside it; undefined without Python. */
async function pythonArguments(): Promise<string[] | undefined> {
  if (!(await isInstalled('python3'))) return undefined;
  const requirements = join(HERE, 'python', 'requirements.txt');
  const target = join(CACHE, 'interop', `python-${contentKey([requirements])}`);
  const site = await buildOnce(target, async (temporary) => {
    // A target directory, unlike a virtual environment, may be renamed into place.
    const pip = ['-m', 'pip', 'install', '-q', '--target', temporary, '-r', requirements];
    await runOrThrow('python3', pip, { timeoutMs: BUILD_TIMEOUT_MS });
  });
  const bootstrap = `import sys, runpy; sys.path.insert(0, ${JSON.stringify(site)}); sys.argv.pop(0)
runpy.run_path(sys.argv[0], run_name='__main__')`;
  return ['-c', bootstrap, join(HERE, 'python', 'client.py')];
}

/** librdkafka as a client under test; undefined without Python. */
export async function librdkafka(): Promise<ClientUnderTest | undefined> {
  const args = await pythonArguments();
  return args === undefined ? undefined : programClient('librdkafka', 'python3', args);
}

/** Reads so many records as a member of a group; undefined without Python. */
export type GroupReader = (
  bootstrap: string,
  topic: string,
  group: string,
  count: number,
) => Promise<ClientRecord[]>;

/** librdkafka as a member of a group, which commits behind what it read. */
export async function librdkafkaMember(): Promise<GroupReader | undefined> {
  const args = await pythonArguments();
  if (args === undefined) return undefined;
  return async (bootstrap, topic, group, count) => {
    const all = [...args, 'group', bootstrap, topic, group, String(count)];
    return parseRecords((await runOrThrow('python3', all, { timeoutMs: 60_000 })).stdout);
  };
}

/** The Java client as a client under test. */
function javaClient(java: JavaClient): ClientUnderTest {
  return {
    name: 'java',
    keepsHeaderOrder: true,
    readAll: (bootstrap, topic, isolation, { maxBytes } = {}) => {
      const limit = { 'max.partition.fetch.bytes': String(maxBytes) };
      return java.readAll(bootstrap, topic, isolation, {}, maxBytes === undefined ? {} : limit);
    },
    tryProduce: (bootstrap, topic) => java.tryProduce(bootstrap, topic),
  };
}

/** Every client that this machine can run: java, kafkajs, franz-go, librdkafka. */
export async function availableClients(java: JavaClient): Promise<ClientUnderTest[]> {
  const clients = [javaClient(java), kafkajsClient()];
  const [franz, rdkafka] = await Promise.all([franzGo(), librdkafka()]);
  if (franz === undefined) unavailable('franz-go', 'go is not installed');
  else clients.push(franz);
  if (rdkafka === undefined) unavailable('librdkafka', 'python3 is not installed');
  else clients.push(rdkafka);
  return clients;
}
