/**
 * Whether a cluster can have a guest, and what to do before it joins: everything that `twinlog
 * guest check` looks at, in order.
 *
 * Called by the command. It joins nothing and changes nothing: it asks, reads the metadata as a
 * client, and tries rights with requests that cannot do anything. A step that cannot be made since
 * an earlier one failed is left out; the earlier one is a problem then.
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import type { Runtime } from '../../io/runtime.ts';
import { guestSupportedFeatures, METADATA_VERSION_FEATURE } from '../../metadata/features.ts';
import type { FeatureRange, MetadataImage } from '../../metadata/image.ts';
import type { HostPort } from '../../metadata/quorum/probe.ts';
import { isPassing } from '../../metadata/quorum/quorum-client.ts';
import { RemoteController } from '../../metadata/quorum/remote-controller.ts';
import type { ConnectionSecurity } from '../../protocol/connection-security.ts';
import { ConnectionError, type KafkaConnection } from '../../protocol/kafka-connection.ts';
import { type Check, problem } from './check.ts';
import { checkInterBroker } from './check-brokers.ts';
import {
  type CheckRuntime,
  type ControllersFound,
  checkControllers,
  connectForCheck,
} from './check-controllers.ts';
import { checkFeatures, checkOldGuests } from './check-features.ts';
import {
  checkInternalTopics,
  checkMembers,
  checkMirrorState,
  checkNodeId,
  checkStrays,
} from './check-image.ts';
import { aclsServer, checkRights } from './check-rights.ts';

/** What is checked, and for which guest. */
export interface CheckOptions {
  readonly bootstrapControllers: readonly HostPort[];
  /** How connections are secured, to controllers and brokers alike. */
  readonly security?: ConnectionSecurity | undefined;
  /** The id that the guest would have. */
  readonly nodeId: number | undefined;
  /** The name of the listener that the guest would have. */
  readonly listener: string;
  /** As the cluster's ACLs name the guest. */
  readonly principal: string;
  /** What the guest would support; by default what this twinlog does. */
  readonly features?: readonly FeatureRange[];
  /** Told of each check as soon as it is made. */
  readonly onCheck: (check: Check) => void;
}

type SecuredRuntime = Runtime & CheckRuntime;

/** Makes all checks that can be made. */
export async function checkCluster(machine: Runtime, options: CheckOptions): Promise<void> {
  const runtime = { ...machine, security: options.security };
  const tell = (checks: readonly Check[]): void => {
    for (const check of checks) options.onCheck(check);
  };
  const answer = await checkControllers(runtime, options.bootstrapControllers);
  const { checks, found, denied } = answer;
  tell(checks);
  if (denied !== undefined) tell(await rights(runtime, denied, undefined, options));
  if (found?.active === undefined) return;
  const features = checkFeatures(found, options.features ?? guestSupportedFeatures);
  tell(features);
  const broker = isTooNew(features) ? undefined : await readAndLook(runtime, found, options, tell);
  tell(await rights(runtime, found.active, broker, options));
}

/** Then records may be of versions that nobody here can read. */
function isTooNew(features: readonly Check[]): boolean {
  const name = `feature ${METADATA_VERSION_FEATURE}`;
  return features.some((check) => check.name === name && check.status === 'problem');
}

/** What the metadata tells, if it can be read; answers a broker that can be asked more. */
async function readAndLook(
  runtime: SecuredRuntime,
  found: ControllersFound,
  options: CheckOptions,
  tell: (checks: readonly Check[]) => void,
): Promise<HostPort | undefined> {
  const image = await readMetadata(runtime, found);
  if (!('status' in image)) return await lookAt(runtime, image, found, options, tell);
  tell([image]);
  return undefined;
}

/** The metadata, or why it cannot be read. */
async function readMetadata(
  runtime: SecuredRuntime,
  { clusterId, controllers }: ControllersFound,
): Promise<MetadataImage | Check> {
  const controller = new RemoteController(runtime, {
    bootstrapControllers: controllers,
    security: runtime.security,
    clusterId,
    nodeId: -1,
    directoryId: ZERO_UUID,
    refence: () => Promise.resolve(),
    schemasOf: () => undefined,
    // What ends the read rejects it.
    onFatal: () => {},
  });
  try {
    return await controller.readImage();
  } catch (error) {
    if (!isPassing(error)) throw error;
    const fix = 'See whether the right CLUSTER_ACTION is missing, below; then run the check again.';
    return problem('metadata', `it cannot be read: ${error.message}`, fix);
  } finally {
    controller.close();
  }
}

/** What the metadata and the brokers tell; answers a broker that can be asked more. */
async function lookAt(
  runtime: SecuredRuntime,
  image: MetadataImage,
  { controllers, supported, apiVersions }: ControllersFound,
  { nodeId, listener, features = guestSupportedFeatures }: CheckOptions,
  tell: (checks: readonly Check[]) => void,
): Promise<HostPort | undefined> {
  const controllerIds = controllers.map((controller) => controller.nodeId);
  tell(checkOldGuests(image, { supported }, features));
  tell([checkMembers(image), checkNodeId(image, controllerIds, nodeId)]);
  const { checks, reachable } = await checkInterBroker(runtime, image, listener);
  tell(checks);
  const bootstrap = reachable === undefined ? 'HOST:PORT' : `${reachable.host}:${reachable.port}`;
  tell([checkStrays(image, apiVersions)]);
  tell(checkInternalTopics(image, apiVersions, bootstrap));
  tell([checkMirrorState(image)]);
  return reachable;
}

async function rights(
  runtime: SecuredRuntime,
  active: HostPort,
  broker: HostPort | undefined,
  { principal, nodeId = 0 }: CheckOptions,
): Promise<Check[]> {
  const opened: KafkaConnection[] = [];
  const open = async (address: HostPort): Promise<KafkaConnection> => {
    const connection = await connectForCheck(runtime, address);
    opened.push(connection);
    return connection;
  };
  try {
    return await checkRights({
      controller: await open(active),
      broker: broker === undefined ? undefined : await open(broker),
      principal,
      nodeId,
      acls: aclsServer(broker, active),
    });
  } catch (error) {
    if (!(error instanceof ConnectionError)) throw error;
    return [problem('rights', `they cannot be tried: ${error.message}`, 'Run the check again.')];
  } finally {
    for (const connection of opened) connection.close();
  }
}
