/**
 * `twinlog guest run`: this broker as a member of an Apache Kafka cluster, until a signal stops it.
 *
 * Called by `main.ts`. Stopping hands leadership back in good order and keeps the identity in the
 * data directory, so that the next start goes on where this one ended (G4, G6).
 */
import { randomUUID } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { startGuest } from '../server/guest-broker.ts';
import {
  type BrokerOptions,
  brokerConfig,
  processRuntime,
  runBroker,
  stopSignal,
} from './broker-process.ts';
import { CommandError, parseAddress, stdoutOutput } from './output.ts';

/** Options of `guest run`. */
export interface GuestRunOptions extends BrokerOptions {
  readonly json: boolean;
  readonly defaultPort: number;
  /** HOST:PORT of controllers, separated by commas. */
  readonly bootstrapController: string;
  readonly nodeId?: number;
}

const BOOT_ID_FILE = '/proc/sys/kernel/random/boot_id';

/** Tells one start of the machine from the next; where nobody says, every start is a new one. */
function bootId(): string {
  try {
    return readFileSync(BOOT_ID_FILE, 'utf8').trim();
  } catch {
    return randomUUID();
  }
}

/** Checks a list of controllers and gives it as a setting. */
export function controllersSetting(text: string): string {
  const addresses = text.split(',').map((each) => each.trim());
  for (const address of addresses) parseAddress(address, '--bootstrap-controller');
  return `controller.quorum.bootstrap.servers=${addresses.join(',')}`;
}

/** Runs the command. */
export async function guestRun(options: GuestRunOptions): Promise<void> {
  const output = stdoutOutput(options.json);
  const stop = stopSignal();
  const given = [controllersSetting(options.bootstrapController)];
  if (options.nodeId !== undefined) given.push(`node.id=${options.nodeId}`);
  const config = brokerConfig({ ...options, set: [...given, ...options.set] }, options.defaultPort);
  if (config.explicit('node.id') === undefined) {
    throw new CommandError('A guest needs a node id that no broker or controller has: --node-id.');
  }
  const runtime = processRuntime(options.logLevel);
  const boot = bootId();
  const guest = await runBroker(runtime, config, output, (...args) => startGuest(...args, boot));
  const address = `${guest.host}:${guest.port}`;
  const member = `node ${guest.brokerId} of cluster ${guest.clusterId}`;
  output.text(`twinlog is a guest: ${member}, serving on ${address}.`);
  output.text(`Data: ${config.text('log.dirs')}. Ctrl-C stops it; its mirrors wait meanwhile.`);
  output.text(`Next: twinlog mirrors create NAME --source HOST:PORT --bootstrap-server ${address}`);
  const signal = await stop;
  output.text(`${signal}: stopping, leadership is given back and logs are flushed …`);
  await guest.close();
  output.value({ event: 'stopped' });
  output.text('Stopped.');
}
