/**
 * `twinlog serve`: runs a broker with its embedded controller until a signal stops it.
 *
 * Called by `main.ts`. The data directory is flushed and marked clean before the process ends; the
 * second signal does not wait for that.
 */
import {
  type BrokerOptions,
  brokerConfig,
  processRuntime,
  runBroker,
  stopSignal,
} from './broker-process.ts';
import { stdoutOutput } from './output.ts';

/** Options of `serve`. */
export interface ServeOptions extends BrokerOptions {
  readonly json: boolean;
  readonly defaultPort: number;
}

/** Runs the command. */
export async function serve(options: ServeOptions): Promise<void> {
  const output = stdoutOutput(options.json);
  const stop = stopSignal();
  const config = brokerConfig(options, options.defaultPort);
  const broker = await runBroker(processRuntime(options.logLevel), config, output);
  const address = `${broker.host}:${broker.port}`;
  output.text(`twinlog is serving on ${address} (cluster ${broker.clusterId}).`);
  output.text(`Data: ${config.text('log.dirs')}. Any Kafka client can connect; Ctrl-C stops it.`);
  output.text(`Next: twinlog mirrors create NAME --source HOST:PORT --bootstrap-server ${address}`);
  const signal = await stop;
  output.text(`${signal}: stopping, logs are being flushed …`);
  await broker.close();
  output.value({ event: 'stopped' });
  output.text('Stopped.');
}
