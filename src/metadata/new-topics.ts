/**
 * What CreateTopics and AddTopicsToMirror share: may a topic of this name and id be created, and
 * which records create it.
 *
 * One {@link NewTopics} lives as long as one decision, so that topics of the same request count as
 * taken for each other.
 */
import type { Uuid } from '../base/uuid.ts';
import { METADATA_TOPIC_ID, ZERO_UUID } from '../base/uuid.ts';
import { ErrorCode } from '../protocol/errors.ts';
import { MAX_PARTITIONS_PER_REQUEST, type Refusal, refuse } from './decide.ts';
import { ConfigResourceType, type MetadataImage } from './image.ts';
import { newPartitionRecord } from './placement.ts';
import { type MetadataRecord, metadataRecord } from './record-framing.ts';
import {
  collisionKey,
  hasCollisionCharacter,
  METADATA_TOPIC_NAME,
  topicNameProblem,
} from './topic-names.ts';

/** Names, ids and partitions that one request adds to an image. */
export class NewTopics {
  readonly #image: MetadataImage;
  readonly #names = new Set<string>();
  readonly #ids = new Set<Uuid>();
  /** Built when a name first needs it: it costs a pass over all topics. */
  #collisions: Map<string, string> | undefined;
  #partitions = 0;

  constructor(image: MetadataImage) {
    this.#image = image;
  }

  /** Why no topic of that name may be created. */
  checkName(name: string): Refusal | undefined {
    const problem = topicNameProblem(name);
    if (problem !== undefined) return refuse(ErrorCode.INVALID_TOPIC_EXCEPTION, problem);
    if (name === METADATA_TOPIC_NAME) {
      return refuse(ErrorCode.INVALID_REQUEST, `The topic ${name} is the metadata log itself.`);
    }
    if (this.#image.topicsByName.has(name) || this.#names.has(name)) {
      return refuse(ErrorCode.TOPIC_ALREADY_EXISTS, `Topic '${name}' already exists.`);
    }
    const other = this.#collision(name);
    if (other === undefined) return undefined;
    return refuse(
      ErrorCode.INVALID_TOPIC_EXCEPTION,
      `Topic '${name}' collides with existing topic '${other}': ` +
        `names that differ only in '.' and '_' would share metrics.`,
    );
  }

  /** Why no topic may have that id; names the topic that has it. */
  checkId(id: Uuid): Refusal | undefined {
    if (id === METADATA_TOPIC_ID || id === ZERO_UUID) {
      return refuse(ErrorCode.INVALID_REQUEST, `The topic id ${id} is reserved.`);
    }
    const holder = this.#image.topicsById.get(id)?.name;
    if (holder === undefined && !this.#ids.has(id)) return undefined;
    return refuse(
      ErrorCode.INVALID_REQUEST,
      `The topic id ${id} is in use by topic '${holder ?? 'of this request'}'.`,
    );
  }

  /** Why no so many partitions may be added to what the request creates already. */
  checkPartitions(count: number): Refusal | undefined {
    if (this.#partitions + count <= MAX_PARTITIONS_PER_REQUEST) return undefined;
    return refuse(
      ErrorCode.POLICY_VIOLATION,
      `One request may create at most ${MAX_PARTITIONS_PER_REQUEST} partitions.`,
    );
  }

  /** Takes name, id and partitions. */
  take(name: string, id: Uuid, partitions: number): void {
    this.#names.add(name);
    this.#ids.add(id);
    this.#partitions += partitions;
    if (hasCollisionCharacter(name)) this.#collisions?.set(collisionKey(name), name);
  }

  /** Where the next topic's replicas start: one broker further than the last topic's. */
  seed(): number {
    return this.#image.topicsByName.size + this.#names.size;
  }

  #collision(name: string): string | undefined {
    if (!hasCollisionCharacter(name)) return undefined;
    if (this.#collisions === undefined) {
      this.#collisions = new Map();
      for (const taken of [...this.#image.topicsByName.keys(), ...this.#names]) {
        if (hasCollisionCharacter(taken)) this.#collisions.set(collisionKey(taken), taken);
      }
    }
    return this.#collisions.get(collisionKey(name));
  }
}

/** A topic that passed all checks. */
export interface TopicPlan {
  readonly name: string;
  readonly id: Uuid;
  readonly assignments: readonly (readonly number[])[];
  readonly configs: ReadonlyMap<string, string>;
}

/** The records that create a topic. */
export function newTopicRecords(image: MetadataImage, plan: TopicPlan): MetadataRecord[] {
  const { name, id } = plan;
  const records: MetadataRecord[] = [metadataRecord('TopicRecord', { name, topicId: id })];
  for (const [key, value] of plan.configs) {
    records.push(topicConfigRecord(name, key, value));
  }
  for (const [partition, replicas] of plan.assignments.entries()) {
    records.push(newPartitionRecord(image, id, partition, replicas));
  }
  return records;
}

/** Sets (or with null removes) a topic's override. */
export function topicConfigRecord(
  topic: string,
  name: string,
  value: string | null,
): MetadataRecord {
  return metadataRecord('ConfigRecord', {
    resourceType: ConfigResourceType.TOPIC,
    resourceName: topic,
    name,
    value,
  });
}
