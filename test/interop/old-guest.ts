/**
 * A program that runs a guest as `twinlog guest run` does, but one that supports a metadata.version
 * of 29 at most, as a twinlog would that is older than Apache Kafka 4.3.
 *
 * Started by `TwinlogBroker`, whose options it takes. It ends as twinlog does: with a sentence when
 * it cannot start, in good order by a signal.
 */
import { parseArgs } from 'node:util';
import {
  brokerConfig,
  processRuntime,
  runBroker,
  stopSignal,
} from '../../src/cli/broker-process.ts';
import { controllersSetting } from '../../src/cli/guest.ts';
import { CommandError, stdoutOutput } from '../../src/cli/output.ts';
import { startGuest } from '../../src/server/guest-broker.ts';
import { featuresUpTo } from '../metadata/features-up-to.ts';

const MAX_METADATA_VERSION = 29;
const TEXT = { type: 'string' } as const;

const { values } = parseArgs({
  allowPositionals: true,
  options: {
    data: TEXT,
    listen: TEXT,
    'log-level': TEXT,
    'bootstrap-controller': TEXT,
    'node-id': TEXT,
    set: { type: 'string', multiple: true },
  },
});

async function run(): Promise<void> {
  const stop = stopSignal();
  const { data = '', listen = '', set = [] } = values;
  const controllers = controllersSetting(values['bootstrap-controller'] ?? '');
  const given = [controllers, `node.id=${values['node-id']}`, ...set];
  const config = brokerConfig({ data, listen, set: given, logLevel: 'info' }, 0);
  const features = featuresUpTo(MAX_METADATA_VERSION);
  const guest = await runBroker(processRuntime('info'), config, stdoutOutput(true), (runtime, o) =>
    startGuest(runtime, { ...o, features }, 'a boot of this machine'),
  );
  await stop;
  await guest.close();
}

try {
  await run();
} catch (error) {
  if (!(error instanceof CommandError)) throw error;
  process.stderr.write(`twinlog: ${error.message}\n`);
  process.exit(1);
}
