/**
 * Makes the AppCDS archive that lets Apache Kafka's programs start two to three times as fast.
 *
 * Once per machine: a training run of a broker, a few tools and the helper JVM notes the classes
 * they load; the merged list is dumped into an archive beside the jars. Everything works without
 * it, only slower, so a failure here is printed and not fatal.
 */
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { startKafka } from './apache-kafka.ts';
import { buildOnce } from './cache.ts';
import { JavaClient } from './java-client.ts';
import { archivePath, classPath, clusterVersion, requireKafkaJars } from './kafka-jars.ts';
import { removeDirectory, runOrThrow, temporaryDirectory } from './processes.ts';
import { runTool, type Tool } from './tools.ts';

/** Runs broker, clients and tools, each noting its classes into a file of its own. */
async function train(directory: string): Promise<void> {
  const list = (name: string) => ({ classList: join(directory, `${name}.list`) });
  const cluster = await startKafka({ name: 'training', jvm: list('broker') });
  const { bootstrap } = cluster;
  const java = await JavaClient.start(list('java-client'));
  try {
    await java.createTopic(bootstrap, 'training', 1);
    const config = { 'transactional.id': 'training', 'compression.type': 'lz4' };
    await java.openProducer(bootstrap, 'p', config);
    await java.begin('p');
    await java.produceAll('p', [{ topic: 'training', value: 'v' }]);
    await java.commit('p');
    await java.closeProducer('p');
    await java.readAll(bootstrap, 'training', 'read_committed');
    await java.offsets(bootstrap, 'training');
    const server = ['--bootstrap-server', bootstrap];
    const segment = join(cluster.broker(1).dataDir, 'training-0', '00000000000000000000.log');
    const group = [...server, '--topic', 'training', '--from-beginning', '--group', 'g'];
    const tools: [Tool, string[], string?][] = [
      ['topics', [...server, '--describe']],
      ['consoleProducer', [...server, '--topic', 'training'], 'hello\n'],
      ['consoleConsumer', [...group, '--max-messages', '1']],
      ['dumpLog', ['--files', segment, '--deep-iteration', '--print-data-log']],
      ['configs', [...server, '--describe', '--entity-type', 'brokers', '--entity-name', '1']],
      ['consumerGroups', [...server, '--describe', '--all-groups']],
    ];
    for (const [name, args, stdin] of tools) {
      await runTool(name, args, { mode: list(name), ...(stdin === undefined ? {} : { stdin }) });
    }
    // SIGTERM lets the JVM finish writing its class list.
    process.kill(java.pid, 'SIGTERM');
    await cluster.stop();
  } finally {
    await java.close();
    await cluster.destroy();
  }
}

async function makeArchive(libs: string, target: string): Promise<void> {
  const directory = temporaryDirectory('training');
  try {
    await train(directory);
    const merged = new Set<string>();
    const programs = ['broker', 'java-client', 'topics', 'consoleProducer', 'consoleConsumer'];
    for (const program of [...programs, 'dumpLog', 'configs', 'consumerGroups']) {
      const lines = readFileSync(join(directory, `${program}.list`), 'utf8').split('\n');
      for (const line of lines) merged.add(line.replace(/ id: \d+$/, ''));
    }
    const classList = join(directory, 'all.list');
    // Lines with `super:` or `source:` refer to ids, which merging makes void.
    const usable = [...merged].filter((line) => !/ (super|source|interfaces): /.test(line));
    writeFileSync(classList, usable.join('\n'));
    const dump = ['-Xshare:dump', `-XX:SharedClassListFile=${classList}`, '-XX:+UseSerialGC'];
    const args = [...dump, `-XX:SharedArchiveFile=${target}`, '-cp', classPath(libs)];
    await runOrThrow('java', args, { timeoutMs: 120_000 });
  } finally {
    removeDirectory(directory);
  }
}

/** Makes the archive of the version that clusters have when there is none yet. */
export async function ensureAppCds(): Promise<void> {
  const libs = await requireKafkaJars(clusterVersion());
  const target = archivePath(libs);
  if (existsSync(target)) return;
  try {
    await buildOnce(target, (temporary) => makeArchive(libs, temporary));
  } catch (error) {
    process.stderr.write(`no AppCDS archive: ${(error as Error).message}\n`);
  }
}
