/**
 * What the `twinlog guest …` commands share that look at a cluster from outside.
 *
 * Failures that a user can do something about become a `CommandError`; the rest is a defect.
 */
import { ClusterError } from '../guest/cluster-client.ts';
import { ClusterLook, type ClusterLookOptions } from '../guest/cluster-look.ts';
import { type HostPort, WrongCluster } from '../metadata/quorum/probe.ts';
import { QuorumUnavailable } from '../metadata/quorum/quorum-client.ts';
import { processRuntime } from './broker-process.ts';
import { commandSecurity } from './client-config.ts';
import { CommandError, parseAddress } from './output.ts';

/** Options that all of these commands have. */
export interface GuestClusterOptions {
  /** HOST:PORT of controllers, separated by commas. */
  readonly bootstrapController: string;
  /** File with the settings of a client of the cluster. */
  readonly commandConfig?: string;
  readonly json: boolean;
}

/** Parses a list of controllers. */
export function controllers(text: string): HostPort[] {
  return text.split(',').map((each) => parseAddress(each, '--bootstrap-controller'));
}

/** Runs `body` with a look at the cluster, and closes it. */
export async function withCluster<T>(
  options: GuestClusterOptions,
  body: (cluster: ClusterLook) => Promise<T>,
  wish: Pick<ClusterLookOptions, 'inPlaceOf'> = {},
): Promise<T> {
  let cluster: ClusterLook | undefined;
  try {
    cluster = await ClusterLook.open(processRuntime('error'), {
      bootstrapControllers: controllers(options.bootstrapController),
      security: commandSecurity(options.commandConfig),
      onFatal: (error) => {
        process.stderr.write(`twinlog: the metadata cannot be followed: ${error.message}\n`);
        process.exit(1);
      },
      ...wish,
    });
    return await body(cluster);
  } catch (error) {
    throw forUsers(error, options.bootstrapController);
  } finally {
    cluster?.close();
  }
}

function forUsers(error: unknown, bootstrap: string): unknown {
  if (error instanceof QuorumUnavailable || error instanceof WrongCluster) {
    return new CommandError(
      `The controllers at ${bootstrap} cannot be asked: ${error.message}. ` +
        '`twinlog guest check` tells more.',
    );
  }
  if (!(error instanceof ClusterError)) return error;
  return new CommandError(
    `The brokers of the cluster cannot be asked: ${error.message}. See that they run.`,
  );
}
