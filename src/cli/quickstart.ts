/**
 * `twinlog quickstart`: a source and a destination cluster in this process, a generator, a mirror.
 *
 * Shows the main job without anything installed: records are written to the source, appear at the
 * destination at the same offsets, and the lines below the banner say what to try. Data lives in a
 * temporary directory that is removed at the end, unless `--data` names one.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { LogLevel } from '../io/node/node-logger.ts';
import type { Runtime } from '../io/runtime.ts';
import type { Broker } from '../server/broker.ts';
import { BrokerConfig } from '../server/broker-config.ts';
import { AdminClient } from './admin-client.ts';
import { processRuntime, runBroker, stopSignal } from './broker-process.ts';
import { Generator } from './generator.ts';
import { showLiveStatus } from './live-status.ts';
import { addMissingTopics, ensureMirror } from './mirror.ts';
import { CommandError, type Output, stdoutOutput } from './output.ts';

/** Options of `quickstart`. */
export interface QuickstartOptions {
  readonly data?: string;
  readonly rate: number;
  readonly logLevel: LogLevel;
  readonly json: boolean;
  /** Stop by itself after so many seconds; 0: run until a signal. */
  readonly seconds: number;
}

const MIRROR = 'demo';
const TOPIC = 'orders';
const PARTITIONS = 3;
const SOURCE_PORT = 19_092;
const DESTINATION_PORT = 29_092;

/** Starts a broker on its usual port, or on any free one when that is taken. */
async function startCluster(
  runtime: Runtime,
  data: string,
  port: number,
  output: Output,
): Promise<Broker> {
  const configFor = (listenPort: number): BrokerConfig =>
    new BrokerConfig(
      new Map([
        ['log.dirs', data],
        ['listeners', `PLAINTEXT://127.0.0.1:${listenPort}`],
        ['num.partitions', String(PARTITIONS)],
        ['group.initial.rebalance.delay.ms', '0'],
      ]),
    );
  try {
    return await runBroker(runtime, configFor(port), output);
  } catch (error) {
    if (!(error instanceof CommandError) || !error.message.includes('EADDRINUSE')) throw error;
    return runBroker(runtime, configFor(0), output);
  }
}

function banner(source: Broker, destination: Broker, output: Output): void {
  const here = `127.0.0.1:${destination.port}`;
  const there = `127.0.0.1:${source.port}`;
  const lines = [
    '',
    '   producer ──▶  source cluster  ──── mirror "demo" ────▶  destination cluster  ──▶ consumers',
    `                 ${there.padEnd(33)}         ${here}`,
    '',
    `Topic ${TOPIC} has the same id, partitions, offsets and bytes on both sides.`,
    'Try, from another terminal in this folder:',
    `  npm run -s twinlog -- mirrors describe ${MIRROR} --bootstrap-server ${here}`,
    `  npm run -s twinlog -- mirrors remove ${MIRROR} ${TOPIC} --bootstrap-server ${here}`,
    '    (fails over: the destination topic stops mirroring and becomes writable)',
    `  kcat -b ${here} -t ${TOPIC} -C -o beginning -c 5      (any Kafka client reads both)`,
    `  echo hello | kcat -b ${here} -t ${TOPIC} -P           (refused until it is removed)`,
    `Mirror your own cluster:  npm start -- --source HOST:PORT --topics 'REGEX'`,
    'Ctrl-C stops everything.',
    '',
  ];
  for (const line of lines) output.text(line);
}

async function run(
  options: QuickstartOptions,
  runtime: Runtime,
  data: string,
  output: Output,
): Promise<void> {
  const stop: Promise<unknown>[] = [stopSignal()];
  if (options.seconds > 0) {
    stop.push(new Promise((resolve) => setTimeout(resolve, options.seconds * 1000)));
  }
  const source = await startCluster(runtime, join(data, 'source'), SOURCE_PORT, output);
  const destination = await startCluster(
    runtime,
    join(data, 'destination'),
    DESTINATION_PORT,
    output,
  );
  const generator = await Generator.start(runtime, source, TOPIC, options.rate);
  const admin = await AdminClient.connect(runtime, destination, 'the destination');
  const there = `127.0.0.1:${source.port}`;
  await ensureMirror(admin, { name: MIRROR, source: there, config: [] }, output);
  await addMissingTopics(admin, MIRROR, [TOPIC], output);
  banner(source, destination, output);
  await showLiveStatus(admin, MIRROR, output, Promise.race(stop));
  admin.close();
  await generator.stop();
  await destination.close();
  await source.close();
}

/** Runs the command. */
export async function quickstart(options: QuickstartOptions): Promise<void> {
  const output = stdoutOutput(options.json);
  const temporary = options.data === undefined;
  const data = options.data ?? mkdtempSync(join(tmpdir(), 'twinlog-quickstart-'));
  const runtime = processRuntime(options.logLevel);
  try {
    await run(options, runtime, data, output);
  } finally {
    if (temporary) rmSync(data, { recursive: true, force: true });
  }
  output.value({ event: 'stopped' });
  output.text(temporary ? 'Stopped; its temporary data is removed.' : `Stopped; data: ${data}.`);
}
