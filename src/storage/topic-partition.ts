/**
 * Names of partitions and of their directories.
 *
 * A partition's directory is `<topic>-<partition>`; a deleted one is renamed to
 * `<topic>-<partition>.<unique>-delete` and removed later, as Apache Kafka does it. Topic names are
 * checked before they get here; a name that could leave the log directory is a Fault.
 */
import { assert } from '../base/assert.ts';

/** One partition of one topic. */
export interface TopicPartition {
  readonly topic: string;
  readonly partition: number;
}

/** Longest file name that common file systems hold, in bytes. */
const MAX_FILE_NAME_BYTES = 255;
const DELETED_SUFFIX = '-delete';
const STRAY_SUFFIX = '-stray';
const FUTURE_SUFFIX = '-future';
const TOPIC_NAME = /^[A-Za-z0-9._-]{1,249}$/;

/** A key for maps: the partition's directory name, which is unique. */
export function partitionKey(topic: string, partition: number): string {
  return `${topic}-${partition}`;
}

/** The directory name of a partition. */
export function directoryName(topicPartition: TopicPartition): string {
  const { topic, partition } = topicPartition;
  assert(TOPIC_NAME.test(topic) && topic !== '.' && topic !== '..', `topic name: ${topic}`);
  assert(Number.isInteger(partition) && partition >= 0, `partition: ${partition}`);
  return partitionKey(topic, partition);
}

/** The name a deleted partition's directory gets; `unique` is letters and digits. */
export function deletedDirectoryName(topicPartition: TopicPartition, unique: string): string {
  return retiredName(topicPartition, unique, DELETED_SUFFIX);
}

/** The name a directory gets that no longer belongs to a partition of this broker, but is kept. */
export function strayDirectoryName(topicPartition: TopicPartition, unique: string): string {
  return retiredName(topicPartition, unique, STRAY_SUFFIX);
}

function retiredName(topicPartition: TopicPartition, unique: string, end: string): string {
  const suffix = `-${topicPartition.partition}.${unique}${end}`;
  return topicPartition.topic.slice(0, MAX_FILE_NAME_BYTES - suffix.length) + suffix;
}

/** Whether a directory was left by a deletion (also Apache Kafka's). */
export function isDeletedDirectory(name: string): boolean {
  return name.endsWith(DELETED_SUFFIX);
}

/** The partition a directory belongs to; undefined for one that is none of ours. */
export function parseDirectoryName(name: string): TopicPartition | undefined {
  if ([DELETED_SUFFIX, STRAY_SUFFIX, FUTURE_SUFFIX].some((suffix) => name.endsWith(suffix))) {
    return undefined;
  }
  const match = /^(.+)-(0|[1-9][0-9]{0,9})$/.exec(name);
  const [topic, digits] = [match?.[1], match?.[2]];
  if (topic === undefined || digits === undefined || !TOPIC_NAME.test(topic)) return undefined;
  return { topic, partition: Number(digits) };
}
