/**
 * The Runtime of a real process: the machine's clocks, randomness, file system, TCP and libraries.
 *
 * Built once by the command line (and by tests), then handed to the composition root. Nothing else
 * knows these implementations.
 */
import type { Logger } from '../../base/logger.ts';
import type { Runtime } from '../runtime.ts';
import { nodeClock } from './node-clock.ts';
import { nodeCompression } from './node-compression.ts';
import { nodeCrypto } from './node-crypto.ts';
import { nodeDisk } from './node-disk.ts';
import { type LogLevel, nodeLogger } from './node-logger.ts';
import { nodeNetwork } from './node-network.ts';
import { nodeRandom } from './node-random.ts';

/** What a process may choose about its runtime. */
export interface NodeRuntimeOptions {
  /** Default: info. Ignored when `logger` is given. */
  readonly logLevel?: LogLevel;
  readonly logger?: Logger;
}

/** The real runtime. */
export function nodeRuntime(options: NodeRuntimeOptions = {}): Runtime {
  const logger = options.logger ?? nodeLogger(options.logLevel ?? 'info');
  return {
    clock: nodeClock(),
    random: nodeRandom(),
    disk: nodeDisk(),
    network: nodeNetwork(logger),
    compression: nodeCompression(),
    crypto: nodeCrypto(),
    logger,
  };
}
