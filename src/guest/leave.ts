/**
 * Makes a cluster forget a guest that does not come back (G6).
 *
 * Called by `twinlog guest leave`. The guest must have stopped and hold no partition; then what
 * says that it was a guest is removed, and its registration. Invariants:
 * - Nothing is changed unless both can be done: a guest that lives would register again at once,
 *   and one that holds partitions is still needed, by its mirrors or for their replication factor.
 * - Broker configs go first: a controller takes none of a broker that is not registered.
 */
import { ConfigResourceType, type MetadataImage } from '../metadata/image.ts';
import { MIRROR_STATE_TOPIC } from '../mirror/state-row.ts';
import { errorName, errors } from '../protocol/errors.ts';
import {
  IncrementalAlterConfigsRequest,
  IncrementalAlterConfigsResponse,
} from '../protocol/messages/44-incremental-alter-configs.ts';
import {
  UnregisterBrokerRequest,
  UnregisterBrokerResponse,
} from '../protocol/messages/64-unregister-broker.ts';
import { listed } from './check/check.ts';
import { GUEST_CONFIG, isGuest, isLive } from './guest-brokers.ts';
import { type JobController, nameOf } from './jobs/job-ports.ts';

const DELETE = 1;

/** What the cluster knows of a guest, and what keeps it from forgetting it. */
export type LeavePlan =
  | { readonly kind: 'gone' }
  | { readonly kind: 'refused'; readonly why: string; readonly partitions: readonly string[] }
  | {
      readonly kind: 'leave';
      readonly configs: readonly string[];
      /** Metadata offset of the registration. */
      readonly epoch: number;
    };

function refused(why: string, partitions: readonly string[] = []): LeavePlan {
  return { kind: 'refused', why, partitions };
}

/** Names of the broker configs of an id that guests have. */
export function guestConfigs(image: MetadataImage, nodeId: number): string[] {
  const names = image.configs(ConfigResourceType.BROKER, String(nodeId)).keys();
  return [...names].filter((name) => name === GUEST_CONFIG || name.startsWith(`${GUEST_CONFIG}.`));
}

/** Partitions that have a replica on the broker, or are to have one. */
export function partitionsOf(image: MetadataImage, nodeId: number): string[] {
  const names: string[] = [];
  for (const { name: topic, partitions } of image.topicsByName.values()) {
    for (const [partition, { replicas }] of partitions) {
      if (replicas.includes(nodeId)) names.push(nameOf({ topic, partition }));
    }
  }
  return names;
}

/**
 * Decides whether a guest can be forgotten. `isMirrored` tells whose partitions wait for guests;
 * `unmarked` also takes a broker that does not say that it is a guest.
 */
export function planLeave(
  image: MetadataImage,
  nodeId: number,
  isMirrored: (topic: string) => boolean,
  unmarked = false,
): LeavePlan {
  const configs = guestConfigs(image, nodeId);
  const broker = image.brokers.get(nodeId);
  if (broker === undefined && configs.length === 0) return { kind: 'gone' };
  if (broker === undefined) {
    return refused(
      `Broker ${nodeId} is not registered any more, but its settings (${listed(configs)}) still ` +
        'say that it is a guest, and a controller changes settings of registered brokers only: ' +
        'start a guest of that id once, stop it, and run this again.',
    );
  }
  if (!isGuest(image, nodeId) && !unmarked) {
    return refused(
      `Broker ${nodeId} does not say that it is a guest. If it was one, and an earlier leave was ` +
        'cut short, add --unmarked.',
    );
  }
  if (isLive(image, nodeId)) {
    return refused(
      `Guest ${nodeId} is running. Stop it first (Ctrl-C or SIGTERM); after a crash, wait until ` +
        'the controller has noticed (broker.session.timeout.ms, 9 seconds by default).',
    );
  }
  const partitions = partitionsOf(image, nodeId);
  if (partitions.length > 0) return refused(whyHeld(image, nodeId, isMirrored), partitions);
  return { kind: 'leave', configs, epoch: broker.epoch };
}

function whyHeld(
  image: MetadataImage,
  nodeId: number,
  isMirrored: (topic: string) => boolean,
): string {
  const held = [...image.topicsByName.values()].filter(({ partitions }) =>
    [...partitions.values()].some(({ replicas }) => replicas.includes(nodeId)),
  );
  const mirrored = held.filter(({ name }) => isMirrored(name)).map(({ name }) => name);
  const strays = held.filter(({ name }) => !isMirrored(name)).map(({ name }) => name);
  const sentences = [`Guest ${nodeId} still holds partitions.`];
  if (mirrored.length > 0) {
    sentences.push(
      `Mirrored: ${listed(mirrored)}. Start it, and fail them over with ` +
        '`twinlog mirrors remove`, or move its replicas to another guest with ' +
        'kafka-reassign-partitions.sh; if all guests are gone for good: `twinlog guest rescue`.',
    );
  }
  if (strays.length > 0) {
    sentences.push(
      `Not mirrored: ${listed(strays)}. A running guest moves them off by itself; else move them ` +
        'with kafka-reassign-partitions.sh.',
    );
  }
  if (strays.includes(MIRROR_STATE_TOPIC)) {
    sentences.push(`${MIRROR_STATE_TOPIC} must never be on a guest.`);
  }
  return sentences.join(' ');
}

/** Carries the plan out; answers why it could not be, as a sentence. */
export async function leave(
  controller: JobController,
  nodeId: number,
  { configs }: LeavePlan & { kind: 'leave' },
): Promise<string | undefined> {
  if (configs.length > 0) {
    const { responses } = await controller.send(
      IncrementalAlterConfigsRequest,
      IncrementalAlterConfigsResponse,
      {
        resources: [
          {
            resourceType: ConfigResourceType.BROKER,
            resourceName: String(nodeId),
            configs: configs.map((name) => ({ name, configOperation: DELETE, value: null })),
          },
        ],
        validateOnly: false,
      },
    );
    const refusal = sentence(responses[0]?.errorCode ?? 0, responses[0]?.errorMessage ?? null);
    if (refusal !== undefined)
      return `The settings of broker ${nodeId} cannot be removed: ${refusal}`;
  }
  const { errorCode, errorMessage } = await controller.send(
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
    { brokerId: nodeId },
  );
  // Another one of these was quicker.
  if (errorCode === errors.BROKER_ID_NOT_REGISTERED.code) return undefined;
  const refusal = sentence(errorCode, errorMessage);
  return refusal && `Broker ${nodeId} cannot be unregistered: ${refusal}`;
}

function sentence(code: number, message: string | null): string | undefined {
  if (code === errors.NONE.code) return undefined;
  const text = message === null || message === '' ? '' : ` ${message}`;
  return `${errorName(code)}${text}`;
}
