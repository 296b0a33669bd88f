/**
 * Turns committed metadata batches into images and tells the publishers, in order.
 *
 * Fed by `ControllerPort.subscribe`, whoever the controller is; one per broker. Invariants:
 * - History is not published: while catching up in `start`, batches gather, and the first delta
 *   leads from nothing to the present. No publisher sees a topic that is long gone.
 * - Records of a metadata transaction are held back until its End, and dropped at its Abort;
 *   meanwhile the image stays as it was, its offset included.
 * - Publishers run one after the other, each seeing the deltas in order, none of them twice. One
 *   that throws stops the process: a broker must not go on with half-applied metadata.
 * - The overlay, configs that are kept elsewhere than in the metadata log (a guest's mirror state,
 *   G22), lies on top of the image always: over snapshots, and over the removal of its topics.
 */
import { assert } from '../base/assert.ts';
import type { Uuid } from '../base/uuid.ts';
import type { ControllerPort } from './controller-port.ts';
import { ConfigResourceType, emptyImage, type MetadataImage } from './image.ts';
import { applyRecords, type MetadataDelta } from './image-delta.ts';
import { replaceImage } from './image-diff.ts';
import type { MetadataRecord } from './record-framing.ts';
import { type PlacedRecord, TransactionBuffer } from './transaction-buffer.ts';

/** Learns of every change of the metadata. */
export interface MetadataPublisher {
  /** For logs. */
  readonly name: string;
  /** Must not throw; must not wait. */
  publish(delta: MetadataDelta): void;
}

interface Waiter {
  readonly offset: number;
  readonly resolve: () => void;
}

/** See the file header. */
export class MetadataLoader {
  readonly #publishers: readonly MetadataPublisher[];
  #transaction = new TransactionBuffer();
  /** By resource and name of the config. */
  readonly #overlay = new Map<string, PlacedRecord>();
  #image: MetadataImage;
  #lastOffset = -1;
  /** Up to where nothing is held back. */
  #ready = { offset: -1, epoch: 0 };
  /** Records of the history, while catching up. */
  #history: PlacedRecord[] | undefined;
  #waiters: Waiter[] = [];

  constructor(clusterId: string, publishers: readonly MetadataPublisher[]) {
    this.#publishers = publishers;
    this.#image = emptyImage(clusterId);
  }

  /** The metadata as last published. */
  get image(): MetadataImage {
    return this.#image;
  }

  /**
   * Follows a controller's metadata. Resolves when the present has been published. Register the
   * broker first, so that the present does not show an earlier incarnation of it as leader.
   */
  async start(controller: Pick<ControllerPort, 'subscribe'>): Promise<void> {
    this.#history = [];
    await controller.subscribe(
      this.#lastOffset + 1,
      (records, lastOffset, epoch) => this.replayBatch(records, lastOffset, epoch),
      (records, lastOffset, epoch) => this.replaySnapshot(records, lastOffset, epoch),
    );
    const history = this.#history;
    this.#history = undefined;
    this.#publish(history);
  }

  /** Applies one committed batch whose last record is at `lastOffset`, and publishes it. */
  replayBatch(records: readonly MetadataRecord[], lastOffset: number, epoch: number): void {
    assert(lastOffset > this.#lastOffset, `metadata batch ${lastOffset} after ${this.#lastOffset}`);
    this.#lastOffset = lastOffset;
    const ready = this.#transaction.add(records, lastOffset);
    if (ready === undefined) return;
    this.#ready = { offset: lastOffset, epoch };
    if (this.#history === undefined) this.#publish(ready);
    else for (const record of ready) this.#history.push(record);
  }

  /**
   * Replaces all that is known by the state that `records` make, as of `lastOffset`, and publishes
   * the difference. An open metadata transaction is part of that state, or was aborted.
   */
  replaySnapshot(records: readonly MetadataRecord[], lastOffset: number, epoch: number): void {
    assert(
      lastOffset >= this.#lastOffset,
      `metadata snapshot ${lastOffset} after ${this.#lastOffset}`,
    );
    this.#transaction = new TransactionBuffer();
    this.#lastOffset = lastOffset;
    this.#ready = { offset: lastOffset, epoch };
    const placed = records.map((record) => ({ record, offset: lastOffset }));
    if (this.#history !== undefined) {
      this.#history = placed;
      return;
    }
    const whole = [...placed, ...this.#overlay.values()];
    this.#tell(replaceImage(this.#image, whole, lastOffset, epoch));
  }

  /**
   * Lays config records over the image and publishes that at once; a null value takes one off
   * again. Each stands at its own offset, whatever that of the image (see `membership`).
   */
  overlay(records: readonly PlacedRecord[]): void {
    for (const placed of records) {
      const { record } = placed;
      assert(record.type === 'ConfigRecord', `${record.type} in an overlay`);
      const { resourceType, resourceName, name, value } = record.value;
      const key = `${resourceType}:${resourceName}:${name}`;
      if (value === null) this.#overlay.delete(key);
      else this.#overlay.set(key, placed);
    }
    // Before the first image there is nothing to publish: it will come with the overlay on it.
    if (this.#history !== undefined || this.#image.offset === -1) return;
    this.#tell(applyRecords(this.#image, records, this.#image.offset, this.#image.epoch));
  }

  #publish(records: readonly PlacedRecord[]): void {
    const { offset, epoch } = this.#ready;
    this.#tell(applyRecords(this.#image, this.#overlaid(records), offset, epoch));
  }

  /** With the overlay behind them, as far as they take it off: a removed topic's configs go. */
  #overlaid(records: readonly PlacedRecord[]): readonly PlacedRecord[] {
    if (this.#overlay.size === 0) return records;
    if (this.#image.offset === -1) return [...records, ...this.#overlay.values()];
    const created = new Map<Uuid, string>();
    const removed = new Set<string | undefined>();
    for (const { record } of records) {
      if (record.type === 'TopicRecord') created.set(record.value.topicId, record.value.name);
      if (record.type !== 'RemoveTopicRecord') continue;
      const { topicId } = record.value;
      removed.add(this.#image.topicsById.get(topicId)?.name ?? created.get(topicId));
    }
    if (removed.size === 0) return records;
    const back = [...this.#overlay.values()].filter(
      ({ record }) =>
        record.type === 'ConfigRecord' &&
        record.value.resourceType === ConfigResourceType.TOPIC &&
        removed.has(record.value.resourceName),
    );
    return [...records, ...back];
  }

  #tell(delta: MetadataDelta): void {
    this.#image = delta.image;
    for (const publisher of this.#publishers) publisher.publish(delta);
    this.#wake();
  }

  /** Resolves when the published image has reached `offset`. */
  waitForOffset(offset: number): Promise<void> {
    if (this.#image.offset >= offset) return Promise.resolve();
    return new Promise((resolve) => {
      this.#waiters.push({ offset, resolve });
    });
  }

  #wake(): void {
    if (this.#waiters.length === 0) return;
    const { offset } = this.#image;
    const due = this.#waiters.filter((waiter) => waiter.offset <= offset);
    this.#waiters = this.#waiters.filter((waiter) => waiter.offset > offset);
    for (const waiter of due) waiter.resolve();
  }
}
