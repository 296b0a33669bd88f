/**
 * The rules for names: of topics (Kafka's), of mirrors (rule O6), and which topics are internal.
 *
 * Used by the controller's decide functions and by whoever wants to refuse a name early.
 */

/** Longest topic or mirror name, in characters. */
export const MAX_NAME_LENGTH = 249;

/** Where transactional ids are kept, one partition per coordinator shard. */
export const TRANSACTION_STATE_TOPIC = '__transaction_state';
/** Where the deliveries of share groups are kept. */
export const SHARE_STATE_TOPIC = '__share_group_state';

/** The topics that are the cluster's own (rule O5). */
export const INTERNAL_TOPIC_NAMES: ReadonlySet<string> = new Set([
  '__cluster_metadata',
  '__consumer_offsets',
  '__mirror_state',
  SHARE_STATE_TOPIC,
  TRANSACTION_STATE_TOPIC,
]);

/** The topic of the metadata log itself: never created, changed or deleted by a request. */
export const METADATA_TOPIC_NAME = '__cluster_metadata';
/** Where the mirror states are kept (rule C1). */
export const MIRROR_STATE_TOPIC_NAME = '__mirror_state';

/** What is wrong with a topic name, or undefined. */
export function topicNameProblem(name: string): string | undefined {
  return nameProblem('topic', name);
}

/** What is wrong with a mirror name, or undefined (rule O6). */
export function mirrorNameProblem(name: string | null): string | undefined {
  if (name === null) return 'A mirror name is missing.';
  if (name.endsWith('.removed')) {
    return `The mirror name '${name}' must not end in '.removed'.`;
  }
  return nameProblem('mirror', name);
}

function nameProblem(kind: string, name: string): string | undefined {
  if (name === '') return `The ${kind} name is empty.`;
  if (name === '.' || name === '..') return `The ${kind} name must not be '.' or '..'.`;
  if (name.length > MAX_NAME_LENGTH) {
    return `The ${kind} name is ${name.length} characters long, at most ${MAX_NAME_LENGTH} may be.`;
  }
  const illegal = /[^A-Za-z0-9._-]/u.exec(name);
  if (illegal === null) return undefined;
  return (
    `The ${kind} name ${JSON.stringify(name)} contains ${JSON.stringify(illegal[0])}; ` +
    `only ASCII letters, digits, '.', '_' and '-' are allowed.`
  );
}

/** Names with the same key would share metric names, so only one of them may exist. */
export function collisionKey(name: string): string {
  return name.replaceAll('.', '_');
}

/** Whether a topic's name needs the collision check at all. */
export function hasCollisionCharacter(name: string): boolean {
  return name.includes('.') || name.includes('_');
}
