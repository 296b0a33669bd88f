/**
 * Turns committed metadata batches into images and tells the publishers, in order.
 *
 * Fed by `ControllerPort.subscribe`, whoever the controller is; the composition root makes one per
 * broker. Invariants:
 * - History is not published: while catching up in `start`, batches gather, and the first delta
 *   leads from nothing to the present. No publisher sees a topic that is long gone.
 * - Records of a metadata transaction are held back until its End, and dropped at its Abort;
 *   meanwhile the image stays as it was, its offset included.
 * - Publishers run one after the other, each seeing the deltas in order, none of them twice. One
 *   that throws stops the process: a broker must not go on with half-applied metadata.
 */
import { assert } from '../base/assert.ts';
import type { ControllerPort } from './controller-port.ts';
import { emptyImage, type MetadataImage } from './image.ts';
import { applyRecords, type MetadataDelta } from './image-delta.ts';
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
  readonly #transaction = new TransactionBuffer();
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
  async start(controller: ControllerPort): Promise<void> {
    this.#history = [];
    await controller.subscribe(this.#lastOffset + 1, (records, lastOffset, epoch) => {
      this.replayBatch(records, lastOffset, epoch);
    });
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

  #publish(records: readonly PlacedRecord[]): void {
    const delta = applyRecords(this.#image, records, this.#ready.offset, this.#ready.epoch);
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
