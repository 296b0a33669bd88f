/**
 * Length-prefixed frames: an int32 size, then that many bytes (a header and a body).
 *
 * {@link FrameReader} sits between a connection (`receiveBuffer`/`received` of its owner) and
 * whoever handles frames. Small frames are found in a scratch buffer; once the length of a larger
 * one is known, the rest is received straight into memory of the frame's own. After a large frame
 * the next read takes little, in the hope that a large one follows. Invariants:
 * - A frame given to `onFrame` is valid during the call and, unless `reuseFrameBuffer` is set, as
 *   long as anybody holds it: its memory is never written again by the reader (a small one keeps
 *   its 64 KiB scratch buffer alive). With `reuseFrameBuffer` it is overwritten after the call.
 * - A size below 0 or above the limit throws {@link BadFrameSize} and ends the reader: close the
 *   connection. No memory is reserved for such a frame.
 */
import { assert, present } from '../base/assert.ts';
import { ByteWriter } from '../base/bytes.ts';
import type { Codec } from './codec.ts';
import { type RequestHeader, writeRequestHeader, writeResponseHeader } from './request-header.ts';
import type { EncodableOf, Message } from './schema.ts';

/** Kafka's default limit of a request (`socket.request.max.bytes`). */
export const DEFAULT_MAX_FRAME_BYTES = 100 * 1024 * 1024;
/** What one read takes while no large frame is in progress. */
export const SCRATCH_BYTES = 64 * 1024;
/** A frame of this size that has not arrived whole gets memory of its own. */
const LARGE_FRAME_BYTES = 16 * 1024;
/** What the first read behind a large frame takes: the next one's length and some of its header. */
const HEAD_BYTES = 128;
/** A reused frame buffer larger than this is given up when it has long been too large. */
const KEPT_FRAME_BYTES = 1024 * 1024;
/** So many frames in a row of less than half of it; fresh memory costs a page fault per 4 KiB. */
const KEPT_FOR_SMALLER_FRAMES = 64;
/** With less room than this the scratch buffer is replaced, unless it may be overwritten. */
const MIN_ROOM_BYTES = 8 * 1024;
const SIZE_BYTES = 4;

/** A frame whose size is negative or above the limit. */
export class BadFrameSize extends Error {
  override readonly name = 'BadFrameSize';
  readonly size: number;
  readonly limit: number;
  constructor(size: number, limit: number) {
    super(`frame of ${size} bytes; allowed are 0 to ${limit}`);
    this.size = size;
    this.limit = limit;
  }
}

/** How a {@link FrameReader} treats memory and sizes. */
export interface FrameReaderOptions {
  /** A function is asked for each frame. */
  readonly maxFrameBytes?: number | (() => number);
  /** Large frames share one buffer: for owners that are done with a frame when the call returns. */
  readonly reuseFrameBuffer?: boolean;
  /** Memory for a large frame, `new Uint8Array` by default; its old content does not matter. */
  readonly allocate?: (length: number) => Uint8Array;
}

/** Cuts a byte stream into frames. */
export class FrameReader {
  readonly #onFrame: (frame: Uint8Array) => void;
  readonly #maxFrameBytes: () => number;
  readonly #reuse: boolean;
  readonly #allocate: (length: number) => Uint8Array;
  #scratch = new Uint8Array(SCRATCH_BYTES);
  /** Received and not yet delivered bytes of the scratch buffer are [start, end). */
  #start = 0;
  #end = 0;
  /** A large frame in progress, and how much of it is filled. */
  #frame: Uint8Array | undefined;
  #filled = 0;
  /** The last frame was a large one. */
  #afterLarge = false;
  #reusable = new Uint8Array(0);
  #smallerFrames = 0;
  #stopped = false;

  constructor(onFrame: (frame: Uint8Array) => void, options: FrameReaderOptions = {}) {
    this.#onFrame = onFrame;
    const max = options.maxFrameBytes ?? DEFAULT_MAX_FRAME_BYTES;
    this.#maxFrameBytes = typeof max === 'number' ? () => max : max;
    this.#reuse = options.reuseFrameBuffer === true;
    this.#allocate = options.allocate ?? ((length) => new Uint8Array(length));
  }

  /** Where the next bytes shall be received; at least one byte long. */
  receiveBuffer(): Uint8Array {
    if (this.#frame !== undefined) return this.#frame.subarray(this.#filled);
    const limit = this.#afterLarge ? this.#end + HEAD_BYTES : this.#scratch.length;
    return this.#scratch.subarray(this.#end, limit);
  }

  /** The first `length` bytes of the last `receiveBuffer()` are filled: delivers whole frames. */
  received(length: number): void {
    if (this.#frame === undefined) {
      this.#end += length;
      assert(this.#end <= this.#scratch.length, 'more received than there was room for');
      this.#deliverScratch();
      this.#makeRoom();
      return;
    }
    this.#filled += length;
    assert(this.#filled <= this.#frame.length, 'more received than there was room for');
    if (this.#filled < this.#frame.length) return;
    const frame = this.#frame;
    this.#frame = undefined;
    this.#afterLarge = true;
    if (!this.#stopped) this.#onFrame(frame);
  }

  /** Nothing is delivered from now on: the owner has closed the connection. */
  stop(): void {
    this.#stopped = true;
  }

  #deliverScratch(): void {
    const view = new DataView(this.#scratch.buffer);
    while (!this.#stopped && this.#end - this.#start >= SIZE_BYTES) {
      const size = view.getInt32(this.#start);
      const max = this.#maxFrameBytes();
      if (size < 0 || size > max) {
        this.#stopped = true;
        throw new BadFrameSize(size, max);
      }
      const from = this.#start + SIZE_BYTES;
      if (this.#end - from < size) {
        if (size >= LARGE_FRAME_BYTES || from + size > this.#scratch.length) {
          this.#beginLarge(from, size);
        } else {
          this.#afterLarge = false;
        }
        return;
      }
      this.#start = from + size;
      this.#afterLarge = false;
      this.#onFrame(this.#scratch.subarray(from, from + size));
    }
  }

  /** Moves what has arrived of a frame that does not fit into memory of its own. */
  #beginLarge(from: number, size: number): void {
    const frame = this.#frameMemory(size);
    frame.set(this.#scratch.subarray(from, this.#end));
    this.#filled = this.#end - from;
    this.#frame = frame;
    this.#start = this.#end;
  }

  #frameMemory(size: number): Uint8Array {
    if (!this.#reuse) return this.#allocate(size);
    const kept = this.#reusable.length;
    this.#smallerFrames = size < kept / 2 ? this.#smallerFrames + 1 : 0;
    const tooLarge = kept > KEPT_FRAME_BYTES && this.#smallerFrames > KEPT_FOR_SMALLER_FRAMES;
    if (kept < size || tooLarge) {
      this.#reusable = new Uint8Array(size);
      this.#smallerFrames = 0;
    }
    return this.#reusable.subarray(0, size);
  }

  /** Delivered views must not be overwritten, so a full scratch buffer is replaced, not rewound. */
  #makeRoom(): void {
    if (!this.#reuse && this.#scratch.length - this.#end >= MIN_ROOM_BYTES) return;
    const rest = this.#scratch.subarray(this.#start, this.#end);
    if (this.#reuse) {
      this.#scratch.copyWithin(0, this.#start, this.#end);
    } else if (rest.length < this.#scratch.length - MIN_ROOM_BYTES || this.#start > 0) {
      this.#scratch = new Uint8Array(SCRATCH_BYTES);
      this.#scratch.set(rest);
    }
    this.#start = 0;
    this.#end = rest.length;
  }
}

function finishFrame(writer: ByteWriter): Uint8Array[] {
  const chunks = writer.chunks();
  const first = chunks[0] as Uint8Array;
  new DataView(first.buffer, first.byteOffset).setInt32(0, writer.length - SIZE_BYTES);
  return chunks;
}

/** A request with size and header, in chunks to be sent in order. */
export function encodeRequestFrame<M extends Message>(
  header: Pick<RequestHeader, 'correlationId' | 'clientId'>,
  codec: Codec<M>,
  value: EncodableOf<M>,
): Uint8Array[] {
  const writer = new ByteWriter();
  writer.int32(0);
  const apiKey = present(codec.message.apiKey, `API key of ${codec.message.name}`);
  writeRequestHeader(writer, { ...header, apiKey, apiVersion: codec.version });
  codec.write(writer, value);
  return finishFrame(writer);
}

/** A response with size and header, in chunks to be sent in order; records are not copied. */
export function encodeResponseFrame<M extends Message>(
  correlationId: number,
  codec: Codec<M>,
  value: EncodableOf<M>,
): Uint8Array[] {
  const writer = new ByteWriter();
  writer.int32(0);
  const apiKey = present(codec.message.apiKey, `API key of ${codec.message.name}`);
  writeResponseHeader(writer, apiKey, codec.version, correlationId);
  codec.write(writer, value);
  return finishFrame(writer);
}

/** A response whose body is encoded already, with size and header. */
export function responseFrameOf(
  request: Pick<RequestHeader, 'apiKey' | 'apiVersion' | 'correlationId'>,
  body: Uint8Array,
): Uint8Array[] {
  const writer = new ByteWriter();
  writer.int32(0);
  writeResponseHeader(writer, request.apiKey, request.apiVersion, request.correlationId);
  writer.raw(body);
  return finishFrame(writer);
}
