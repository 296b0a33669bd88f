/**
 * Memory that is used again: what fetches read into, and large request frames.
 *
 * Fresh memory costs a page fault per 4 KiB and, with V8, a collection of the whole heap for every
 * few dozen megabytes: measured at two fifths of what a broker spends while it serves consumers.
 * - Giving back is optional: memory that nobody gives back is collected like any other.
 * - Whoever gives back must be the last to hold any view of that memory. Memory is given back as a
 *   whole, by any view of it; views of memory that is not on loan are ignored.
 * - Memory that is taken holds old bytes.
 */

/** Smaller pieces are not worth it. */
export const MIN_POOLED_BYTES = 16 * 1024;
/** Larger pieces are rare. */
export const MAX_POOLED_BYTES = 16 * 1024 * 1024;
/** Memory kept for later. */
export const MAX_FREE_BYTES = 64 * 1024 * 1024;

/** See the file header. */
export class BufferPool {
  /** By size, a power of two. */
  readonly #free = new Map<number, ArrayBufferLike[]>();
  readonly #lent = new WeakSet<ArrayBufferLike>();
  #freeBytes = 0;

  /** Bytes that wait to be used again. */
  get freeBytes(): number {
    return this.#freeBytes;
  }

  /** Memory of exactly `length` bytes. */
  take(length: number): Uint8Array {
    if (length < MIN_POOLED_BYTES || length > MAX_POOLED_BYTES) {
      return Buffer.allocUnsafeSlow(length);
    }
    const size = 2 ** (32 - Math.clz32(length - 1));
    const memory = this.#free.get(size)?.pop();
    if (memory === undefined) return this.#lend(Buffer.allocUnsafeSlow(size).buffer, length);
    this.#freeBytes -= size;
    return this.#lend(memory, length);
  }

  #lend(memory: ArrayBufferLike, length: number): Uint8Array {
    this.#lent.add(memory);
    return Buffer.from(memory, 0, length);
  }

  /** Nobody holds a view of this memory any more. */
  give({ buffer: memory }: Uint8Array): void {
    if (!this.#lent.delete(memory)) return;
    const size = memory.byteLength;
    if (this.#freeBytes + size > MAX_FREE_BYTES) return;
    const same = this.#free.get(size);
    if (same === undefined) this.#free.set(size, [memory]);
    else same.push(memory);
    this.#freeBytes += size;
  }
}
