/**
 * The mirror states of the partitions that this broker leads, as far as they are durable.
 *
 * Implements the gate that makes a mirrored partition read-only (rules R1, R3). Fed by the
 * partition drivers after their row is durable, and by the metadata: it must be the first metadata
 * publisher, so that a topic created with membership is never writable for a moment.
 */
import type { Uuid } from '../base/uuid.ts';
import type { MetadataImage } from '../metadata/image.ts';
import type { MetadataDelta } from '../metadata/image-delta.ts';
import type { MetadataPublisher } from '../metadata/metadata-loader.ts';
import type { MirrorGate, ReadOnlyReason } from '../replication/mirror-gate.ts';
import type { MirrorStateName } from './states.ts';

/** See the file header. */
export class MirrorPartitionStates implements MirrorGate, MetadataPublisher {
  readonly name = 'mirror partition states';
  readonly #states = new Map<
    string,
    { readonly mirror: string; readonly state: MirrorStateName }
  >();
  #image: MetadataImage | undefined;

  publish(delta: MetadataDelta): void {
    this.#image = delta.image;
  }

  /** A row of this partition became durable in this state. */
  set(topicId: Uuid, partition: number, mirror: string, state: MirrorStateName): void {
    this.#states.set(`${topicId}:${partition}`, { mirror, state });
  }

  /** Leadership is lost, or a new one has not read its row yet (rule S6). */
  clear(topicId: Uuid, partition: number): void {
    this.#states.delete(`${topicId}:${partition}`);
  }

  /** The durable state under one mirror; UNKNOWN when none is known. */
  state(topicId: Uuid, partition: number, mirror: string): MirrorStateName {
    const found = this.#states.get(`${topicId}:${partition}`);
    return found?.mirror === mirror ? found.state : 'UNKNOWN';
  }

  /**
   * Whether what a log holds is the source's business alone, so that neither retention nor
   * compaction may run on it (rules F5, F8). A replica that does not lead knows no state: of a
   * topic that was removed from its mirror it does as its settings say.
   */
  isCopy(topicId: Uuid, topic: string, partition: number, brokerId: number): boolean {
    const image = this.#image;
    if (image === undefined) return true;
    if (this.readOnly(topicId, topic, partition) === undefined) return false;
    if (image.membership(topic)?.removed !== true) return true;
    return image.topicsByName.get(topic)?.partitions.get(partition)?.leader === brokerId;
  }

  readOnly(topicId: Uuid, topic: string, partition: number): ReadOnlyReason | undefined {
    const membership = this.#image?.membership(topic);
    if (membership === undefined) return undefined;
    const { mirror } = membership;
    const state = this.state(topicId, partition, mirror);
    return state === 'STOPPED' ? undefined : { topic, mirror, state };
  }
}
