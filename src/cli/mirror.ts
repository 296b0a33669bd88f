/**
 * `twinlog mirror`: the main job in one command.
 *
 * Starts a broker, creates the mirror, adds the source topics that match, then shows the progress
 * until a signal stops it. Repeatable: a mirror of that name with the same source goes on where it
 * was.
 */
import type { Runtime } from '../io/runtime.ts';
import { AdminClient, type TopicListing } from './admin-client.ts';
import {
  type BrokerOptions,
  brokerConfig,
  parseSetting,
  processRuntime,
  runBroker,
  stopSignal,
} from './broker-process.ts';
import { mirrorSecurity } from './client-config.ts';
import { showLiveStatus } from './live-status.ts';
import { CommandError, type Output, stdoutOutput } from './output.ts';

/** Options of `mirror`. */
export interface MirrorOptions extends BrokerOptions {
  readonly source: string;
  /** A regular expression that must match the whole topic name. */
  readonly topics: string;
  readonly name: string;
  /** Mirror settings, `name=value`. */
  readonly config: readonly string[];
  readonly json: boolean;
  readonly defaultPort: number;
}

/** Compiles a whole-match pattern; a CommandError when it is no regular expression. */
function topicPattern(text: string): RegExp {
  try {
    return new RegExp(`^(?:${text})$`);
  } catch (error) {
    throw new CommandError(`--topics ${text}: ${(error as Error).message}.`, 2);
  }
}

/** The source's topics that match, never internal ones (rule O5). */
async function matchingTopics(
  runtime: Runtime,
  options: MirrorOptions,
  pattern: RegExp,
): Promise<string[]> {
  const source = await AdminClient.connectAny(
    runtime,
    options.source,
    '--source',
    'the source',
    mirrorSecurity(options.config.map(parseSetting)),
  );
  let topics: TopicListing[];
  try {
    topics = await source.listTopics();
  } finally {
    source.close();
  }
  const eligible = topics.filter(({ name, isInternal }) => !isInternal && !name.startsWith('__'));
  const matching = eligible.filter(({ name }) => pattern.test(name)).map(({ name }) => name);
  if (matching.length > 0) return matching.sort();
  const there = eligible.map(({ name }) => name).sort();
  throw new CommandError(
    `No topic of ${options.source} matches --topics '${options.topics}'. ` +
      (there.length === 0
        ? 'The source has no topics yet.'
        : `It has: ${there.slice(0, 20).join(', ')}${there.length > 20 ? ', …' : ''}.`),
  );
}

/** Creates the mirror unless it is there already with the same source. */
export async function ensureMirror(
  admin: AdminClient,
  options: Pick<MirrorOptions, 'name' | 'source' | 'config'>,
  output: Output,
): Promise<void> {
  const existing = (await admin.listMirrors()).find(
    ({ mirrorName }) => mirrorName === options.name,
  );
  if (existing !== undefined) {
    if (existing.sourceBootstrap !== options.source) {
      throw new CommandError(
        `Mirror ${options.name} of this data directory has source ` +
          `${existing.sourceBootstrap}, not ${options.source}. ` +
          'Use another --name or another --data directory.',
      );
    }
    output.text(`Mirror ${options.name} exists already and goes on.`);
    return;
  }
  const settings: [string, string][] = [
    ['bootstrap.servers', options.source],
    ...options.config.map(parseSetting),
  ];
  const refused = await admin.createMirror(options.name, settings);
  if (refused !== null) throw new CommandError(`${refused.error}: ${refused.message}`);
  output.value({ event: 'mirrorCreated', mirror: options.name, source: options.source });
  output.text(`Mirror ${options.name} created: source ${options.source}.`);
}

/** Adds the topics that the mirror does not have yet; fails when none of them could be added. */
export async function addMissingTopics(
  admin: AdminClient,
  mirrorName: string,
  topics: readonly string[],
  output: Output,
): Promise<void> {
  const [description] = await admin.describeMirrors([mirrorName]);
  const present = new Set(description?.topics.map(({ topicName }) => topicName));
  const missing = topics.filter((topic) => !present.has(topic));
  if (missing.length === 0) return;
  const results = await admin.addTopics(mirrorName, missing);
  for (const { topic, error, message } of results) {
    output.value({ event: 'topicAdded', topic, error, message });
    output.text(error === null ? `  + ${topic}` : `  ! ${topic}: ${error}: ${message}`);
  }
  const failed = results.filter(({ error }) => error !== null);
  if (failed.length === results.length && present.size === 0) {
    throw new CommandError('No topic could be added; the lines above say why.');
  }
}

/** Runs the command. */
export async function mirror(options: MirrorOptions): Promise<void> {
  const output = stdoutOutput(options.json);
  const pattern = topicPattern(options.topics);
  const stop = stopSignal();
  const runtime = processRuntime(options.logLevel);
  const topics = await matchingTopics(runtime, options, pattern);
  const config = brokerConfig(options, options.defaultPort);
  const broker = await runBroker(runtime, config, output);
  const address = `${broker.host}:${broker.port}`;
  try {
    const admin = await AdminClient.connect(runtime, broker, 'the broker just started');
    output.text(`twinlog serves the mirror on ${address} (data: ${config.text('log.dirs')}).`);
    await ensureMirror(admin, options, output);
    await addMissingTopics(admin, options.name, topics, output);
    output.text('Read it with any Kafka client; the topics are read-only until removed:');
    output.text(`  twinlog mirrors describe ${options.name} --bootstrap-server ${address}`);
    output.text(`  twinlog mirrors remove ${options.name} TOPIC --bootstrap-server ${address}`);
    output.text('Ctrl-C stops this broker; the same command goes on where it was.');
    await showLiveStatus(admin, options.name, output, stop);
    admin.close();
  } finally {
    await broker.close();
  }
  output.value({ event: 'stopped' });
  output.text('Stopped.');
}
