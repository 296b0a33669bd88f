/**
 * One end of a simulated TCP connection.
 *
 * Bytes written are copied into the send queue and leave in segments of seeded size as far as the
 * peer's receive window allows; they arrive in order. The owner's calls are always made from an
 * event, never from inside its own calls.
 *
 * - `open`: both directions work as far as this end knows. `closed`: it was told, or told us.
 * - An end whose process died answers what still arrives with a reset, as a kernel does.
 */
import type { SeededRandom } from '../base/random.ts';
import type { CloseReason, Connection, ConnectionOwner } from '../io/runtime.ts';
import type { SimProcess } from './sim-process.ts';

/** From here on `write` answers false. */
const WRITE_HIGH_MARK_BYTES = 256 * 1024;
/** Bytes on the way or waiting in the peer's kernel; more waits in the send queue. */
const RECEIVE_WINDOW_BYTES = 1024 * 1024;
/** One segment at most; frames are larger and smaller than this. */
const MAX_SEGMENT_BYTES = 64 * 1024;
/** How often a segment is cut at a random place, so that readers meet every kind of split. */
const ODD_SPLIT_CHANCE = 0.2;

/** What travels between two ends. */
export type Segment =
  | { readonly kind: 'connect' | 'accept' | 'refuse' | 'end' | 'reset' }
  | { readonly kind: 'data'; readonly bytes: Uint8Array };

/** How an end reaches its peer; made by the network. */
export interface SegmentSender {
  send(segment: Segment): void;
}

/** See the file header. */
export class SimConnection implements Connection {
  readonly remoteAddress: string;
  readonly localPort: number;
  readonly process: SimProcess;
  readonly #sender: SegmentSender;
  readonly #random: SeededRandom;
  #peer: SimConnection | undefined;
  #owner: ConnectionOwner | undefined;
  #sendQueue: Uint8Array[] = [];
  #queuedBytes = 0;
  #inFlightBytes = 0;
  #inbox: Uint8Array[] = [];
  #pendingClose: CloseReason | undefined;
  #open = true;
  #paused = false;
  #awaitingWritable = false;
  #deliveryQueued = false;

  constructor(
    process: SimProcess,
    remoteAddress: string,
    localPort: number,
    sender: SegmentSender,
    random: SeededRandom,
  ) {
    this.process = process;
    this.remoteAddress = remoteAddress;
    this.localPort = localPort;
    this.#sender = sender;
    this.#random = random;
  }

  get open(): boolean {
    return this.#open;
  }

  /** Joins the two ends; the receiver gives window back through it. */
  static join(a: SimConnection, b: SimConnection): void {
    a.#peer = b;
    b.#peer = a;
  }

  start(owner: ConnectionOwner): void {
    this.#owner = owner;
    this.#queueDelivery();
  }

  write(chunks: readonly Uint8Array[], sent?: () => void): boolean {
    if (!this.#open || !this.process.alive || this.#pendingClose !== undefined) return true;
    for (const chunk of chunks) {
      if (chunk.length === 0) continue;
      // A copy, which slice() of a Buffer is not.
      this.#sendQueue.push(new Uint8Array(chunk));
      this.#queuedBytes += chunk.length;
    }
    sent?.();
    this.#pump();
    this.#awaitingWritable = this.#queuedBytes >= WRITE_HIGH_MARK_BYTES;
    return !this.#awaitingWritable;
  }

  pause(): void {
    this.#paused = true;
  }

  resume(): void {
    this.#paused = false;
    this.#queueDelivery();
  }

  close(): void {
    if (this.#open && this.process.alive) this.#sender.send({ kind: 'end' });
    this.forget();
  }

  queuedBytes(): number {
    return this.#queuedBytes;
  }

  /** Ends without a word to the owner; what is queued or received is dropped. */
  forget(): void {
    this.#open = false;
    this.#sendQueue = [];
    this.#queuedBytes = 0;
    this.#inbox = [];
  }

  /** The process died and its kernel closes the connection. */
  abandon(): void {
    if (this.#open) this.#sender.send({ kind: 'end' });
    this.forget();
  }

  /** A segment has arrived. */
  receive(segment: Segment): void {
    if (segment.kind === 'reset') this.fail('ECONNRESET', 'connection reset');
    else if (!this.#open || !this.process.alive) this.#refuse(segment);
    else if (segment.kind === 'data') {
      this.#inbox.push(segment.bytes);
      this.#deliver();
    } else if (segment.kind === 'end') {
      this.#pendingClose = { cause: 'closed', message: `${this.remoteAddress}: closed by peer` };
      this.#deliver();
    }
  }

  /** The connection breaks at this end, at once. */
  fail(cause: string, what: string): void {
    if (!this.#open) return;
    this.#inbox = [];
    this.#pendingClose = { cause, message: `${this.remoteAddress}: ${what}` };
    this.#queueDelivery();
  }

  /** Data for nobody is answered with a reset; an end for nobody needs no answer. */
  #refuse(segment: Segment): void {
    if (segment.kind === 'data') this.#sender.send({ kind: 'reset' });
  }

  #queueDelivery(): void {
    if (this.#deliveryQueued) return;
    this.#deliveryQueued = true;
    this.process.schedule(0, 'socket', () => {
      this.#deliveryQueued = false;
      this.#deliver();
    });
  }

  #deliver(): void {
    const owner = this.#owner;
    if (owner === undefined) return;
    while (this.#inbox.length > 0 && this.#open && !this.#paused) {
      const bytes = this.#inbox.shift()!;
      const target = owner.receiveBuffer();
      const length = Math.min(target.length, bytes.length);
      target.set(bytes.subarray(0, length));
      if (length < bytes.length) this.#inbox.unshift(bytes.subarray(length));
      owner.received(length);
      this.#peer?.consumed(length);
    }
    if (this.#pendingClose === undefined || this.#inbox.length > 0 || !this.#open) return;
    this.forget();
    owner.closed(this.#pendingClose);
  }

  /** The peer has taken bytes: as much more may be sent. */
  consumed(length: number): void {
    this.#inFlightBytes -= length;
    if (this.#sendQueue.length === 0 && !this.#awaitingWritable) return;
    this.process.schedule(0, 'window', () => this.#pump());
  }

  #pump(): void {
    if (!this.#open || this.#pendingClose !== undefined) return;
    while (this.#sendQueue.length > 0 && this.#inFlightBytes < RECEIVE_WINDOW_BYTES) {
      const bytes = this.#takeSegment(RECEIVE_WINDOW_BYTES - this.#inFlightBytes);
      this.#inFlightBytes += bytes.length;
      this.#sender.send({ kind: 'data', bytes });
    }
    if (!this.#awaitingWritable || this.#queuedBytes > 0) return;
    this.#awaitingWritable = false;
    this.process.schedule(0, 'writable', () => {
      if (this.#open) this.#owner?.writable();
    });
  }

  #takeSegment(window: number): Uint8Array {
    const first = this.#sendQueue[0]!;
    let length = Math.min(first.length, MAX_SEGMENT_BYTES, window);
    if (this.#random.chance(ODD_SPLIT_CHANCE)) length = 1 + this.#random.below(length);
    if (length === first.length) this.#sendQueue.shift();
    else this.#sendQueue[0] = first.subarray(length);
    this.#queuedBytes -= length;
    return first.subarray(0, length);
  }
}
