/**
 * The bytes of one simulated file: what programs see, and what a power loss would leave.
 *
 * `content` is what a read returns (the page cache). `#durable` is what was synced. Between them
 * stand the unsynced writes and truncations, in order: a power loss keeps some of them. Writes that
 * were pending when a sync failed are doomed: no later sync makes them durable.
 */
import type { SeededRandom } from '../base/random.ts';

/** What a power loss does to unsynced writes. */
export interface PowerLoss {
  /** `lose`: none survives. `prefix`: the first few, in order. `subset`: any of them. */
  readonly unsynced: 'lose' | 'prefix' | 'subset';
  /** The last surviving write of each file may keep only its first bytes. */
  readonly tornTail: boolean;
}

/** Bytes with room to grow; unwritten gaps read as zeros. */
class GrowingBytes {
  #bytes = new Uint8Array(0);
  #size = 0;

  get size(): number {
    return this.#size;
  }

  view(): Uint8Array {
    return this.#bytes.subarray(0, this.#size);
  }

  write(bytes: Uint8Array, position: number): void {
    this.#reserve(position + bytes.length);
    this.#bytes.set(bytes, position);
    this.#size = Math.max(this.#size, position + bytes.length);
  }

  truncate(size: number): void {
    this.#reserve(size);
    if (size < this.#size) this.#bytes.fill(0, size, this.#size);
    this.#size = size;
  }

  #reserve(size: number): void {
    if (size <= this.#bytes.length) return;
    const grown = new Uint8Array(Math.max(size, this.#bytes.length * 2));
    grown.set(this.view());
    this.#bytes = grown;
  }
}

type Change =
  | { kind: 'write'; position: number; bytes: Uint8Array; doomed: boolean }
  | { kind: 'truncate'; size: number; doomed: boolean };

function apply(target: GrowingBytes, change: Change): void {
  if (change.kind === 'truncate') target.truncate(change.size);
  else target.write(change.bytes, change.position);
}

function torn(change: Change, random: SeededRandom): Change {
  if (change.kind === 'truncate') return change;
  return { ...change, bytes: change.bytes.subarray(0, random.below(change.bytes.length + 1)) };
}

/** See the file header. */
export class SimFile {
  #content = new GrowingBytes();
  #durable = new GrowingBytes();
  #changes: Change[] = [];

  get size(): number {
    return this.#content.size;
  }

  /** The bytes a program reads; do not change them. */
  content(): Uint8Array {
    return this.#content.view();
  }

  write(bytes: Uint8Array, position: number): void {
    if (bytes.length === 0) return;
    // A copy, which slice() of a Buffer is not: the writer may use its memory again at once.
    this.#change({ kind: 'write', position, bytes: new Uint8Array(bytes), doomed: false });
  }

  truncate(size: number): void {
    this.#change({ kind: 'truncate', size, doomed: false });
  }

  /** The same file, apart from what happens to this one from now on. */
  copy(): SimFile {
    const copy = new SimFile();
    copy.#content.write(this.#content.view(), 0);
    copy.#durable.write(this.#durable.view(), 0);
    copy.#changes = this.#changes.map((change) => ({ ...change }));
    return copy;
  }

  /** Marks this moment; the result makes everything before it durable, or dooms it. */
  beginSync(): { succeed(): void; fail(): void } {
    const covered = [...this.#changes];
    return {
      succeed: () => {
        const now = new Set(covered);
        for (const change of this.#changes) {
          if (now.has(change) && !change.doomed) apply(this.#durable, change);
        }
        this.#changes = this.#changes.filter((change) => !now.has(change) || change.doomed);
      },
      fail: () => {
        for (const change of covered) change.doomed = true;
      },
    };
  }

  /** Drops from the content what the power loss takes. What is left is durable. */
  losePower(loss: PowerLoss, random: SeededRandom): void {
    const kept = this.#surviving(loss, random);
    for (const [index, change] of kept.entries()) {
      const last = index === kept.length - 1;
      apply(this.#durable, last && loss.tornTail ? torn(change, random) : change);
    }
    this.#changes = [];
    this.#content = new GrowingBytes();
    this.#content.write(this.#durable.view(), 0);
  }

  #surviving(loss: PowerLoss, random: SeededRandom): Change[] {
    const candidates = this.#changes.filter((change) => !change.doomed);
    if (loss.unsynced === 'lose') return [];
    if (loss.unsynced === 'prefix') return candidates.slice(0, random.below(candidates.length + 1));
    return candidates.filter(() => random.chance(0.5));
  }

  #change(change: Change): void {
    apply(this.#content, change);
    this.#changes.push(change);
  }
}
