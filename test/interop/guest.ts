/**
 * Starts twinlog as a guest of a real Apache Kafka cluster, through the command line, as users do.
 *
 * A guest is a `TwinlogBroker` whose command is `guest run`: it keeps node id, port and data over
 * `stop`/`kill9` and `start`. `guestCommand` runs the other `twinlog guest …` commands.
 */
import type { KafkaCluster } from './apache-kafka.ts';
import { freePort } from './processes.ts';
import { TwinlogBroker, twinlogCommand } from './twinlog.ts';

/** The node id of the first guest in tests; the second one's is one above. */
export const GUEST_ID = 201;

/** What guest to start, and where. */
export interface GuestOptions {
  readonly name: string;
  readonly cluster: KafkaCluster;
  readonly nodeId?: number;
  /** Of the PLAINTEXT listener; a free one by default. */
  readonly port?: number;
  readonly settings?: Readonly<Record<string, string>>;
  /** What runs the guest: a program that takes what twinlog takes; twinlog itself by default. */
  readonly program?: string;
  readonly logLevel?: 'debug' | 'info' | 'warn' | 'error';
}

/** Small internal topics; heartbeats as often as the harness's short broker session wants them. */
const QUICK = { 'mirror.topic.num.partitions': '2', 'broker.heartbeat.interval.ms': '500' };

/** Starts a guest with an empty data directory and waits until it serves. */
export async function startGuest(options: GuestOptions): Promise<TwinlogBroker> {
  const { cluster, nodeId = GUEST_ID, port, settings, ...rest } = options;
  const where = ['--bootstrap-controller', cluster.controllerBootstrap];
  const command = ['guest', 'run', ...where, '--node-id', String(nodeId)];
  const guest = new TwinlogBroker(
    { ...rest, command, settings: { ...QUICK, ...settings } },
    port ?? (await freePort()),
  );
  try {
    await guest.start();
    return guest;
  } catch (error) {
    await guest.destroy();
    throw error;
  }
}

/** Runs `twinlog guest <command>` against a cluster; its standard output, or an error with all. */
export function guestCommand(cluster: KafkaCluster, ...args: readonly string[]): Promise<string> {
  const where = ['--bootstrap-controller', cluster.controllerBootstrap];
  return twinlogCommand('guest', ...args, ...where);
}

/** A line of `guest check`. */
export interface CheckLine {
  readonly status: string;
  readonly found: string;
  readonly fix?: string;
}

/** What `guest check` says, by what was looked at; that it fails is part of the result. */
export async function guestChecks(
  cluster: KafkaCluster,
  ...args: readonly string[]
): Promise<ReadonlyMap<string, CheckLine>> {
  const text = await guestCommand(cluster, 'check', '--json', ...args).catch(
    (error: Error) => error.message,
  );
  const lines = text.split('\n').filter((line) => line.startsWith('{'));
  const values = lines.map((line) => JSON.parse(line) as CheckLine & { readonly check?: string });
  return new Map(values.flatMap((value) => (value.check ? [[value.check, value] as const] : [])));
}

/** What `guest rescue` says of a partition before it does anything. */
export interface RescuePlan {
  readonly event: string;
  readonly partition: number;
  readonly state: string;
  readonly replicas: readonly { readonly brokerId: number; readonly end: number }[];
  readonly elect: number;
  readonly end: number;
  readonly missing: readonly string[];
}

/** The plan of a rescue, in the order of partitions. */
export async function rescuePlan(cluster: KafkaCluster): Promise<RescuePlan[]> {
  const text = await guestCommand(cluster, 'rescue', '--json');
  const lines = text.split('\n').filter((line) => line.startsWith('{'));
  const plan = lines.map((line) => JSON.parse(line) as RescuePlan);
  return plan.sort((a, b) => a.partition - b.partition);
}
