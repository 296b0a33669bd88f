/**
 * A broker inside this process, started from command-line options and stopped by signals.
 *
 * Used by serve, mirror and quickstart. The first SIGINT or SIGTERM stops cleanly (logs flushed,
 * clean-shutdown marker written), a second one ends at once. Listening anywhere but on the loopback
 * interface without authentication prints a warning.
 */
import type { LogLevel } from '../io/node/node-logger.ts';
import { nodeRuntime } from '../io/node/node-runtime.ts';
import type { Runtime } from '../io/runtime.ts';
import { type Broker, startBroker } from '../server/broker.ts';
import { BrokerConfig } from '../server/broker-config.ts';
import { listeners } from '../server/broker-parts.ts';
import { listenerProtocol } from '../server/listener-security.ts';
import { CommandError, type Output, parseAddress } from './output.ts';
import { readProperties } from './properties.ts';

/** Options shared by the commands that run a broker. */
export interface BrokerOptions {
  /** Data directory; else the properties' `log.dirs`, else its default. */
  readonly data?: string;
  /** HOST:PORT; else the properties' `listeners`, else the loopback interface. */
  readonly listen?: string;
  readonly properties?: string;
  /** `name=value` settings. */
  readonly set: readonly string[];
  readonly logLevel: LogLevel;
}

/** Splits `name=value`. */
export function parseSetting(text: string): [string, string] {
  const at = text.indexOf('=');
  if (at <= 0) throw new CommandError(`Setting ${text}: write it as name=value.`, 2);
  return [text.slice(0, at).trim(), text.slice(at + 1).trim()];
}

/** The settings of a broker: properties file, then options, then `--set`, each over the former. */
export function brokerConfig(options: BrokerOptions, defaultPort: number): BrokerConfig {
  const given = new Map<string, string>();
  if (options.properties !== undefined) {
    for (const [name, value] of readProperties(options.properties)) given.set(name, value);
  }
  if (options.data !== undefined) given.set('log.dirs', options.data);
  if (options.listen !== undefined) {
    parseAddress(options.listen, '--listen');
    given.set('listeners', `PLAINTEXT://${options.listen}`);
  }
  for (const [name, value] of options.set.map(parseSetting)) given.set(name, value);
  if (!given.has('listeners')) given.set('listeners', `PLAINTEXT://127.0.0.1:${defaultPort}`);
  try {
    return new BrokerConfig(given);
  } catch (error) {
    throw new CommandError((error as Error).message, 2);
  }
}

/** The real runtime, logging to stderr. */
export function processRuntime(logLevel: LogLevel): Runtime {
  return nodeRuntime({ logLevel });
}

function isLoopback(host: string): boolean {
  return host === 'localhost' || host === '::1' || /^127\./.test(host);
}

/** The broker can keep no promise any more: what is not durable yet was never acknowledged. */
function endProcess(error: Error): never {
  const why = error.cause instanceof Error ? `: ${error.cause.message}` : '';
  process.stderr.write(`twinlog: the broker stops: ${error.message}${why}\n`);
  process.exit(1);
}

/** Whether clients of a listener have to say who they are. */
function authenticates(config: BrokerConfig, listener: string): boolean {
  const protocol = listenerProtocol(config, listener);
  const prefixed = config.explicit(`listener.name.${listener.toLowerCase()}.ssl.client.auth`);
  const wish = prefixed ?? config.text('ssl.client.auth');
  return protocol.startsWith('SASL') || (protocol === 'SSL' && wish.trim() === 'required');
}

/** What an operator must know who lets others reach the broker. */
function warnOfExposure({ host, port }: Broker, config: BrokerConfig): void {
  for (const listener of listeners(config)) {
    if (isLoopback(listener.host) || authenticates(config, listener.name)) continue;
    process.stderr.write(
      `warning: listening on ${listener.host}:${listener.port || port} without authentication: ` +
        'anyone who reaches this address can read and write every topic\n',
    );
  }
  const isWildcard = host === '' || host === '0.0.0.0' || host === '::';
  if (!isWildcard || config.explicit('advertised.listeners') !== undefined) return;
  process.stderr.write(
    `warning: clients elsewhere cannot use the address ${host || 'of every interface'}; name one ` +
      `with --set advertised.listeners=PLAINTEXT://HOST:${port}\n`,
  );
}

/** Starts a broker, by default one with its own controller; a CommandError when it cannot start. */
export async function runBroker(
  runtime: Runtime,
  config: BrokerConfig,
  output: Output,
  start: typeof startBroker = startBroker,
): Promise<Broker> {
  for (const name of config.unknownNames) {
    process.stderr.write(`warning: setting ${name} is unknown to twinlog and ignored\n`);
  }
  let broker: Broker;
  try {
    broker = await start(runtime, { config, onFatal: endProcess });
  } catch (error) {
    throw new CommandError(`The broker cannot start: ${(error as Error).message}`);
  }
  warnOfExposure(broker, config);
  output.value({
    event: 'started',
    host: broker.host,
    port: broker.port,
    clusterId: broker.clusterId,
    data: config.text('log.dirs'),
  });
  return broker;
}

/** Resolves at the first SIGINT or SIGTERM; the second ends the process at once. */
export function stopSignal(): Promise<NodeJS.Signals> {
  return new Promise((resolve) => {
    let signalled = false;
    for (const signal of ['SIGINT', 'SIGTERM'] as const) {
      process.on(signal, () => {
        if (signalled) process.exit(130);
        signalled = true;
        resolve(signal);
      });
    }
  });
}
