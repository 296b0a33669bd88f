/**
 * `twinlog mirrors …`: create, add, remove, list and describe the mirrors of a running twinlog.
 *
 * One function per subcommand, called by `main.ts` with parsed options. Each opens one connection
 * and closes it again; what failed per topic is printed before the command fails.
 */
import { OpenTransactions } from '../protocol/messages/12792-remove-topics-from-mirror.ts';
import { AdminClient, type TopicOutcome } from './admin-client.ts';
import { parseSetting, processRuntime } from './broker-process.ts';
import { commandSecurity, mirrorSettings } from './client-config.ts';
import {
  describeCauses,
  describeTable,
  type PartitionStatus,
  partitionStatuses,
} from './mirror-status.ts';
import { CommandError, type Output, stdoutOutput, table } from './output.ts';

/** Options that all of these commands have. */
export interface MirrorsOptions {
  /** HOST:PORT of any broker of the destination. */
  readonly bootstrapServer: string;
  /** File with the settings of a client of the destination. */
  readonly commandConfig?: string;
  readonly json: boolean;
}

const WAIT_INTERVAL_MS = 200;

async function withAdmin(
  options: MirrorsOptions,
  run: (admin: AdminClient, output: Output) => Promise<void>,
): Promise<void> {
  const { bootstrapServer } = options;
  const runtime = processRuntime('warn');
  const admin = await AdminClient.connectAny(
    runtime,
    bootstrapServer,
    '--bootstrap-server',
    'twinlog',
    commandSecurity(options.commandConfig),
  );
  try {
    await run(admin, stdoutOutput(options.json));
  } finally {
    admin.close();
  }
}

/** `mirrors create NAME --source …`. */
export function createMirror(
  name: string,
  options: MirrorsOptions & {
    readonly source: string;
    readonly config: readonly string[];
    /** File with the settings of a client of the source. */
    readonly sourceConfig?: string;
    readonly skipValidation: boolean;
  },
): Promise<void> {
  return withAdmin(options, async (admin, output) => {
    const settings = new Map([
      ...mirrorSettings(options.sourceConfig),
      ['bootstrap.servers', options.source] as const,
      ...options.config.map(parseSetting),
    ]);
    const refused = await admin.createMirror(name, [...settings], options.skipValidation);
    if (refused !== null) throw new CommandError(`${refused.error}: ${refused.message}`);
    output.value({ mirror: name, source: options.source });
    output.text(`Mirror ${name} created: source ${options.source}.`);
    output.text(`Next: twinlog mirrors add ${name} TOPIC…`);
  });
}

/** Prints outcomes; fails (after printing all) when any topic failed. */
function report(outcomes: readonly TopicOutcome[], verb: string, output: Output): void {
  for (const outcome of outcomes) {
    output.value(outcome);
    const { topic, error, message } = outcome;
    output.text(error === null ? `${topic}: ${verb}` : `${topic}: ${error}: ${message}`);
  }
  const failed = outcomes.filter(({ error }) => error !== null).length;
  if (failed > 0) throw new CommandError(`${failed} of ${outcomes.length} topics failed.`);
}

/** `mirrors add NAME TOPIC…`. */
export function addTopics(
  name: string,
  topics: readonly string[],
  options: MirrorsOptions,
): Promise<void> {
  return withAdmin(options, async (admin, output) => {
    report(await admin.addTopics(name, topics), `added to ${name}, read-only here`, output);
    output.text(`Next: twinlog mirrors describe ${name}`);
  });
}

function isStopped({ state }: PartitionStatus): boolean {
  return state === 'STOPPED';
}

async function waitUntilStopped(
  admin: AdminClient,
  name: string,
  topics: readonly string[],
  output: Output,
): Promise<PartitionStatus[]> {
  let lastWaiting = -1;
  for (;;) {
    const [mirror] = await admin.describeMirrors([name]);
    const all = mirror === undefined ? [] : partitionStatuses(mirror);
    const concerned = all.filter(({ topic }) => topics.includes(topic));
    const waiting = concerned.filter((each) => !isStopped(each));
    if (waiting.length === 0) return concerned;
    if (waiting.length !== lastWaiting) {
      output.text(`  ${waiting.length} of ${concerned.length} partitions not STOPPED yet …`);
      const stuck = waiting.find(({ cause }) => cause !== '');
      if (stuck !== undefined) {
        const { topic, partition, cause, message } = stuck;
        output.text(`  ${topic}-${partition} ${cause}: ${message}`);
      }
    }
    lastWaiting = waiting.length;
    await new Promise((resolve) => setTimeout(resolve, WAIT_INTERVAL_MS));
  }
}

/** `mirrors remove NAME TOPIC…`: stops mirroring; the topics become writable. */
export function removeTopics(
  name: string,
  topics: readonly string[],
  options: MirrorsOptions & {
    readonly wait: boolean;
    readonly openTransactions: 'cut' | 'close';
  },
): Promise<void> {
  return withAdmin(options, async (admin, output) => {
    const isClosing = options.openTransactions === 'close';
    const open = isClosing ? OpenTransactions.CLOSE : OpenTransactions.CUT;
    report(await admin.removeTopics(name, topics, open), `leaving ${name}`, output);
    if (!options.wait) {
      output.text(`Next: twinlog mirrors describe ${name} shows when they are STOPPED.`);
      return;
    }
    const stopped = await waitUntilStopped(admin, name, topics, output);
    for (const { topic, partition, lastMirroredOffset } of stopped) {
      output.value({ topic, partition, state: 'STOPPED', lastMirroredOffset });
      const from = lastMirroredOffset < 0 ? 'nothing was mirrored' : `from ${lastMirroredOffset}`;
      output.text(`  ${topic}-${partition}: STOPPED, writable (${from})`);
    }
    const first = isClosing
      ? 'each transaction that was open has an abort marker from the last mirrored offset shown on.'
      : 'the first new offset is the last mirrored offset shown.';
    output.text(`Producers may write now; ${first}`);
  });
}

/** `mirrors list`. */
export function listMirrors(options: MirrorsOptions): Promise<void> {
  return withAdmin(options, async (admin, output) => {
    const mirrors = await admin.listMirrors();
    for (const { mirrorName, sourceBootstrap, topicCount, sourceClusterId } of mirrors) {
      output.value({ mirror: mirrorName, source: sourceBootstrap, topicCount, sourceClusterId });
    }
    if (mirrors.length === 0) {
      output.text('No mirrors. Next: twinlog mirrors create NAME --source HOST:PORT');
      return;
    }
    const rows = mirrors.map((mirror) => [
      mirror.mirrorName,
      mirror.sourceBootstrap,
      mirror.sourceClusterId || '-',
      mirror.topicCount,
    ]);
    for (const line of table(['MIRROR', 'SOURCE', 'SOURCE-CLUSTER', 'TOPICS'], rows)) {
      output.text(line);
    }
  });
}

/** `mirrors describe [NAME…]`. */
export function describeMirrors(names: readonly string[], options: MirrorsOptions): Promise<void> {
  return withAdmin(options, async (admin, output) => {
    const mirrors = await admin.describeMirrors(names);
    if (mirrors.length === 0) output.text('No mirrors.');
    for (const mirror of mirrors) {
      output.value({ mirror: mirror.mirrorName, partitions: partitionStatuses(mirror) });
      output.text(`Mirror ${mirror.mirrorName}`);
      for (const line of describeTable(mirror)) output.text(line);
      for (const line of describeCauses(mirror)) output.text(line);
    }
  });
}
