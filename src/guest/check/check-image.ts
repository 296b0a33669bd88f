/**
 * What the cluster's metadata says about whether a guest can join it, and what it needs before.
 *
 * Pure: a step of `twinlog guest check`, made from the metadata image and from what the controllers
 * serve. Rules G7 and G8 (strays, internal topics), G11 (node id), G22 (where the mirror state is).
 */
import { METADATA_VERSION_FEATURE } from '../../metadata/features.ts';
import { ConfigResourceType, type MetadataImage, type TopicImage } from '../../metadata/image.ts';
import { MIRROR_STATE_TOPIC } from '../../mirror/state-row.ts';
import { BrokerHeartbeatRequest } from '../../protocol/messages/63-broker-heartbeat.ts';
import { apacheBrokers, isGuest, isLive } from '../guest-brokers.ts';
import { CORDON_HEARTBEAT_VERSION, CORDON_METADATA_VERSION } from '../jobs/cordon.ts';
import { type Check, listed, ok, problem, warning } from './check.ts';

const SHARE_FEATURE = 'share.version';
/** Replicas, and of them in sync, that keep the mirror state through the loss of a broker. */
const SAFE_REPLICAS = 3;
const SAFE_IN_SYNC = 2;

/** Topics that the cluster makes by itself, and what makes it do so. */
const INTERNAL_TOPICS: readonly (readonly [topic: string, command: string])[] = [
  ['__consumer_offsets', 'kafka-consumer-groups.sh SERVER --describe --group any'],
  ['__transaction_state', 'kafka-transactions.sh SERVER describe --transactional-id any'],
  ['__share_group_state', 'kafka-console-share-consumer.sh SERVER --topic any --timeout-ms 5000'],
];

// --- node id (G11) ----------------------------------------------------------------------------

/** Whether the id is nobody's; without one, which one would do. */
export function checkNodeId(
  image: MetadataImage,
  controllerIds: readonly number[],
  nodeId: number | undefined,
): Check {
  const name = 'node id';
  const taken = [...new Set([...controllerIds, ...image.brokers.keys()])].sort((a, b) => a - b);
  const free = Math.max(0, ...taken) + 1;
  const another = `Give the guest another id, such as --node-id ${free}.`;
  if (nodeId === undefined) return ok(name, `none was given; ${free} is free`, { free });
  if (controllerIds.includes(nodeId)) return problem(name, `${nodeId} is a controller's`, another);
  if (!image.brokers.has(nodeId)) return ok(name, `${nodeId} is free`);
  if (!isGuest(image, nodeId)) return problem(name, `${nodeId} is a broker's`, another);
  if (isLive(image, nodeId)) return problem(name, `${nodeId} is a running guest's`, another);
  const fix =
    'That guest may come back with its own data directory. For a new one give another id, or let ' +
    `the old one go first: twinlog guest leave --node-id ${nodeId}.`;
  return warning(name, `${nodeId} is that of a guest that does not run`, fix);
}

/** Who is in the cluster. */
export function checkMembers(image: MetadataImage): Check {
  const name = 'brokers';
  const brokers = apacheBrokers(image);
  const dead = brokers.filter(({ id }) => !isLive(image, id)).map(({ id }) => id);
  const found = [...image.brokers.keys()].filter((id) => isGuest(image, id));
  const guests = found.length === 0 ? 'no guest yet' : `guests: ${listed(found)}`;
  const text = `${brokers.length} (${listed(brokers.map(({ id }) => id))}); ${guests}`;
  if (brokers.length === 0) {
    return problem(name, 'there is none', 'Start the brokers of the cluster first.');
  }
  if (dead.length === 0) return ok(name, text, { guests: found });
  return warning(name, `${text}; not running: ${listed(dead)}`, 'Start them, if they shall be.');
}

// --- strays (G7, G8) --------------------------------------------------------------------------

/** Whether the cluster can be told to place nothing on a guest. */
export function canCordon(image: MetadataImage, apiVersions: ReadonlyMap<number, number>): boolean {
  const heartbeat = apiVersions.get(BrokerHeartbeatRequest.apiKey ?? -1) ?? 0;
  const level = image.features.get(METADATA_VERSION_FEATURE) ?? 0;
  return heartbeat >= CORDON_HEARTBEAT_VERSION && level >= CORDON_METADATA_VERSION;
}

/** What happens to partitions that the cluster places on a guest. */
export function checkStrays(image: MetadataImage, apiVersions: ReadonlyMap<number, number>): Check {
  const name = 'foreign partitions';
  if (canCordon(image, apiVersions)) {
    return ok(name, 'none will be placed on a guest: its log directory is cordoned');
  }
  const level = image.features.get(METADATA_VERSION_FEATURE) ?? 0;
  return ok(
    name,
    'some of new topics will be placed on a guest, which moves them off within a second or two ' +
      `(from metadata.version ${CORDON_METADATA_VERSION} on none would; it is ${level})`,
  );
}

/** Whether the topics exist that the cluster makes by itself, or makes them where none strays. */
export function checkInternalTopics(
  image: MetadataImage,
  apiVersions: ReadonlyMap<number, number>,
  bootstrapServer: string,
): Check[] {
  const cordon = canCordon(image, apiVersions);
  return INTERNAL_TOPICS.map(([topic, command]) => {
    const name = `topic ${topic}`;
    const found = image.topicsByName.get(topic);
    if (found !== undefined) return checkPlacement(image, name, found);
    const isUnused =
      topic === '__share_group_state' && (image.features.get(SHARE_FEATURE) ?? 0) === 0;
    if (isUnused) return ok(name, 'it does not exist and is not needed: share.version is 0');
    if (cordon) return ok(name, 'it does not exist yet; none of it will be placed on a guest');
    const server = `--bootstrap-server ${bootstrapServer}`;
    return warning(
      name,
      'it does not exist yet: made while a guest is in, some of it lands there for a moment',
      'Have the cluster make it before a guest joins (the command itself finds nothing): ' +
        command.replace('SERVER', server),
    );
  });
}

function checkPlacement(image: MetadataImage, name: string, topic: TopicImage): Check {
  const strays = [...topic.partitions.values()].filter(({ replicas }) =>
    replicas.some((id) => isGuest(image, id)),
  );
  if (strays.length === 0) return ok(name, `it exists, with ${topic.partitions.size} partitions`);
  const found = `${strays.length} of its ${topic.partitions.size} partitions are on a guest`;
  const fix =
    'A running guest moves them off by itself; else move them with kafka-reassign-partitions.sh.';
  return warning(name, found, fix);
}

// --- mirror state (G22) -----------------------------------------------------------------------

/** Where the rows of the mirror state are, or will be. */
export function checkMirrorState(image: MetadataImage): Check {
  const name = `topic ${MIRROR_STATE_TOPIC}`;
  const topic = image.topicsByName.get(MIRROR_STATE_TOPIC);
  const brokers = apacheBrokers(image).filter(({ id }) => isLive(image, id)).length;
  const possible = Math.min(SAFE_REPLICAS, brokers);
  if (topic === undefined) {
    const found = `the first mirror makes it, with ${possible} replicas`;
    if (possible >= SAFE_REPLICAS) return ok(name, found);
    return warning(name, found, 'With three brokers it would survive the loss of one.');
  }
  const partitions = [...topic.partitions.values()];
  const onGuests = partitions.filter(({ replicas }) => replicas.some((id) => isGuest(image, id)));
  if (onGuests.length > 0) {
    const found = `${onGuests.length} of its partitions have a replica on a guest`;
    const fix = 'Move them to the brokers of the cluster with kafka-reassign-partitions.sh.';
    return problem(name, found, fix);
  }
  const minIsr = minInSync(image, MIRROR_STATE_TOPIC);
  const stuck = partitions.filter(({ isr, leader }) => leader < 0 || isr.length < minIsr);
  if (stuck.length > 0) {
    const found =
      `${stuck.length} of its ${partitions.length} partitions have fewer than ${minIsr} replicas ` +
      'in sync: no mirror state can be written';
    return problem(name, found, 'Start the brokers that have its replicas.');
  }
  const replicas = Math.min(...partitions.map((partition) => partition.replicas.length));
  const policy = image.configs(ConfigResourceType.TOPIC, MIRROR_STATE_TOPIC).get('cleanup.policy');
  const found =
    `${partitions.length} partitions, ${replicas} replicas, ` + `min.insync.replicas ${minIsr}`;
  if (policy !== 'compact') {
    const fix =
      `Set it: kafka-configs.sh --alter --topic ${MIRROR_STATE_TOPIC} ` +
      '--add-config cleanup.policy=compact';
    return problem(name, `${found}; cleanup.policy is ${policy ?? "the cluster's"}`, fix);
  }
  const isSafe = replicas >= possible && minIsr >= Math.min(SAFE_IN_SYNC, possible - 1);
  if (isSafe) return ok(name, found);
  const fix =
    `Rows are safe with ${possible} replicas and min.insync.replicas ` +
    `${Math.max(1, Math.min(SAFE_IN_SYNC, possible - 1))}: kafka-reassign-partitions.sh and ` +
    'kafka-configs.sh change that.';
  return warning(name, found, fix);
}

/** As far as the metadata tells it: brokers' own settings are not in it. */
function minInSync(image: MetadataImage, topic: string): number {
  const name = 'min.insync.replicas';
  const text =
    image.configs(ConfigResourceType.TOPIC, topic).get(name) ??
    image.configs(ConfigResourceType.BROKER, '').get(name);
  return Number(text ?? 1);
}
