/**
 * The newest offset of every key in the dirty part of a log, in a fixed amount of memory.
 *
 * Keys are not kept: an entry is 24 bytes, a 128-bit hash of the key and the offset. Two of a
 * billion keys have the same hash (MurmurHash3, x86, 128 bits) once in some 10^20 runs; the random
 * seed of each run keeps an accident from repeating. Whoever makes keys collide on purpose writes
 * to that topic, and could as well write tombstones.
 *
 * Invariant: every record with a key at or below `latestOffset`, from the offset where filling
 * began, is in the map.
 */

const ENTRY_BYTES = 24;
/** Slots in use of all, at most: probing stays short. */
const LOAD_FACTOR = 0.8;
/** Largest map; its slots are addressed by 32-bit integers. */
export const MAX_OFFSET_MAP_BYTES = 0x7fff_ffff;
const MIN_SLOTS = 16;

const C1 = 0x239b961b;
const C2 = 0xab0e9789;
const C3 = 0x38b34ae5;
const C4 = 0xa1e38b93;

/** Bytes of a map that holds `entries` keys. */
export function offsetMapBytes(entries: number): number {
  return Math.ceil(entries / LOAD_FACTOR + 1) * ENTRY_BYTES;
}

function rotate(value: number, bits: number): number {
  return (value << bits) | (value >>> (32 - bits));
}

function finish(value: number): number {
  let hash = value;
  hash = Math.imul(hash ^ (hash >>> 16), 0x85ebca6b);
  hash = Math.imul(hash ^ (hash >>> 13), 0xc2b2ae35);
  return hash ^ (hash >>> 16);
}

/** The 128-bit hash of a byte range, into four fields. */
export class KeyHash {
  readonly #seeds: Int32Array;
  h1 = 0;
  h2 = 0;
  h3 = 0;
  h4 = 0;

  /** `seed` has 16 bytes. */
  constructor(seed: Uint8Array) {
    this.#seeds = new Int32Array(seed.slice(0, 16).buffer);
  }

  of(bytes: Uint8Array, start: number, end: number): void {
    this.h1 = this.#seeds[0] as number;
    this.h2 = this.#seeds[1] as number;
    this.h3 = this.#seeds[2] as number;
    this.h4 = this.#seeds[3] as number;
    let at = start;
    for (; end - at >= 16; at += 16) {
      this.#first(int32(bytes, at));
      this.h1 = (Math.imul(rotate(this.h1, 19) + this.h2, 5) + 0x561ccd1b) | 0;
      this.#second(int32(bytes, at + 4));
      this.h2 = (Math.imul(rotate(this.h2, 17) + this.h3, 5) + 0x0bcaa747) | 0;
      this.#third(int32(bytes, at + 8));
      this.h3 = (Math.imul(rotate(this.h3, 15) + this.h4, 5) + 0x96cd1c35) | 0;
      this.#fourth(int32(bytes, at + 12));
      this.h4 = (Math.imul(rotate(this.h4, 13) + this.h1, 5) + 0x32ac3b17) | 0;
    }
    if (at < end) this.#tail(bytes, at, end);
    this.#finish(end - start);
  }

  #tail(bytes: Uint8Array, at: number, end: number): void {
    if (end - at > 12) this.#fourth(partial(bytes, at + 12, end));
    if (end - at > 8) this.#third(partial(bytes, at + 8, end));
    if (end - at > 4) this.#second(partial(bytes, at + 4, end));
    this.#first(partial(bytes, at, end));
  }

  #first(word: number): void {
    this.h1 ^= Math.imul(rotate(Math.imul(word, C1), 15), C2);
  }

  #second(word: number): void {
    this.h2 ^= Math.imul(rotate(Math.imul(word, C2), 16), C3);
  }

  #third(word: number): void {
    this.h3 ^= Math.imul(rotate(Math.imul(word, C3), 17), C4);
  }

  #fourth(word: number): void {
    this.h4 ^= Math.imul(rotate(Math.imul(word, C4), 18), C1);
  }

  #finish(length: number): void {
    this.#add(this.h1 ^ length, this.h2 ^ length, this.h3 ^ length, this.h4 ^ length);
    this.#add(finish(this.h1), finish(this.h2), finish(this.h3), finish(this.h4));
  }

  #add(h1: number, h2: number, h3: number, h4: number): void {
    this.h1 = (h1 + h2 + h3 + h4) | 0;
    this.h2 = (h2 + this.h1) | 0;
    this.h3 = (h3 + this.h1) | 0;
    this.h4 = (h4 + this.h1) | 0;
  }
}

function int32(bytes: Uint8Array, at: number): number {
  return (
    (bytes[at] as number) |
    ((bytes[at + 1] as number) << 8) |
    ((bytes[at + 2] as number) << 16) |
    ((bytes[at + 3] as number) << 24)
  );
}

/** Up to four bytes before `end`. */
function partial(bytes: Uint8Array, at: number, end: number): number {
  let word = 0;
  for (let index = Math.min(end, at + 4) - 1; index >= at; index--) {
    word = (word << 8) | (bytes[index] as number);
  }
  return word;
}

/** Key to newest offset. */
export class CleanerOffsetMap {
  readonly #slots: number;
  readonly #limit: number;
  /** Six words an entry: four of the hash, then the offset as a double. */
  readonly #words: Int32Array;
  /** Three doubles an entry; the third is the offset plus one, 0 in a free slot. */
  readonly #doubles: Float64Array;
  readonly #hash: KeyHash;
  #size = 0;
  #latestOffset = -1;

  /** A map of at most `bytes` bytes; `seed` has 16 random bytes. */
  constructor(bytes: number, seed: Uint8Array) {
    const bounded = Math.min(bytes, MAX_OFFSET_MAP_BYTES);
    this.#slots = Math.max(MIN_SLOTS, Math.floor(bounded / ENTRY_BYTES));
    this.#limit = Math.floor(this.#slots * LOAD_FACTOR);
    const buffer = new ArrayBuffer(this.#slots * ENTRY_BYTES);
    this.#words = new Int32Array(buffer);
    this.#doubles = new Float64Array(buffer);
    this.#hash = new KeyHash(seed);
  }

  get size(): number {
    return this.#size;
  }

  /** Keys that fit. */
  get limit(): number {
    return this.#limit;
  }

  /** The offset up to which the log is in the map; −1: nothing is. */
  get latestOffset(): number {
    return this.#latestOffset;
  }

  /** Everything up to `offset` is in the map. */
  advanceTo(offset: number): void {
    this.#latestOffset = offset;
  }

  /** Offsets must come in order. False: the key is new and the map is full. */
  put(bytes: Uint8Array, start: number, end: number, offset: number): boolean {
    const slot = this.#find(bytes, start, end);
    if (this.#doubles[slot * 3 + 2] === 0) {
      if (this.#size === this.#limit) return false;
      this.#size++;
      const word = slot * 6;
      this.#words[word] = this.#hash.h1;
      this.#words[word + 1] = this.#hash.h2;
      this.#words[word + 2] = this.#hash.h3;
      this.#words[word + 3] = this.#hash.h4;
    }
    this.#doubles[slot * 3 + 2] = offset + 1;
    return true;
  }

  /** The newest offset of a key; −1 when the map does not know it. */
  get(bytes: Uint8Array, start: number, end: number): number {
    return (this.#doubles[this.#find(bytes, start, end) * 3 + 2] as number) - 1;
  }

  /** The key's slot, or the free one where it belongs. */
  #find(bytes: Uint8Array, start: number, end: number): number {
    const hash = this.#hash;
    hash.of(bytes, start, end);
    let slot = (hash.h1 >>> 0) % this.#slots;
    while (this.#doubles[slot * 3 + 2] !== 0) {
      const word = slot * 6;
      if (
        this.#words[word] === hash.h1 &&
        this.#words[word + 1] === hash.h2 &&
        this.#words[word + 2] === hash.h3 &&
        this.#words[word + 3] === hash.h4
      ) {
        return slot;
      }
      slot = slot + 1 === this.#slots ? 0 : slot + 1;
    }
    return slot;
  }
}
