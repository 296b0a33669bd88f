/**
 * One driver's way to its row: reads and writes that are repeated until they are answered.
 *
 * Used by `partition-driver.ts` alone, one operation at a time. Invariants:
 * - What keeps the row out of reach is shown (`trouble`) from the first refusal to the next
 *   success: a driver that waits, or that is fenced again and again, never does so silently (S5).
 * - After `close` nothing is written and every operation ends without a result.
 */
import type { Runtime } from '../io/runtime.ts';
import { type ErrorCode, errorName, errors } from '../protocol/errors.ts';
import { type BackoffPolicy, backoffMs } from '../replication/backoff.ts';
import type { MirrorCause } from './causes.ts';
import type { MirrorStateStore } from './mirror-coordinator.ts';
import type { Trouble } from './partition-fetch.ts';
import type { MirrorStateRow, RowKey } from './state-row.ts';

/** Backoff of reads and writes of the row. */
export const STORE_BACKOFF: BackoffPolicy = { initialMs: 50, maxMs: 5_000 };

/** How a write ended; `fenced`: somebody else moved the row (S4); `void`: the driver is closed. */
export type WriteOutcome = 'durable' | 'fenced' | 'refused' | 'void';

const FENCED: ReadonlySet<ErrorCode> = new Set<ErrorCode>([
  errors.FENCED_LEADER_EPOCH.code,
  errors.FENCED_STATE_EPOCH.code,
]);

/** See the file header. */
export class RowAccess {
  readonly #runtime: Pick<Runtime, 'clock' | 'random'>;
  readonly #store: MirrorStateStore;
  readonly #key: RowKey;
  #trouble: Trouble | undefined;
  #attempts = 0;
  #closed = false;

  constructor(runtime: Pick<Runtime, 'clock' | 'random'>, store: MirrorStateStore, key: RowKey) {
    this.#runtime = runtime;
    this.#store = store;
    this.#key = key;
  }

  /** Undefined: the last operation succeeded, or none was refused yet. */
  get trouble(): Trouble | undefined {
    return this.#trouble;
  }

  close(): void {
    this.#closed = true;
  }

  /** The durable row or a definite "no row"; undefined when the driver was closed meanwhile. */
  async read(): Promise<{ readonly row: MirrorStateRow | undefined } | undefined> {
    for (;;) {
      const answer = await this.#store.read(this.#key);
      if (this.#closed) return undefined;
      if ('row' in answer) return { row: answer.row };
      await this.pause(`the row of the partition is not readable: ${errorName(answer.error)}`);
      if (this.#closed) return undefined;
    }
  }

  /** A refusal that waiting cures is tried again for as long as the driver lives (D3). */
  async write(row: MirrorStateRow): Promise<WriteOutcome> {
    return this.#untilAnswered(() => this.#store.write(this.#key, row));
  }

  /** Deletes a row of a former life: one that serves a membership older than the given (S7). */
  async discard(membershipOffset: number): Promise<WriteOutcome> {
    return this.#untilAnswered(() => this.#store.discard(this.#key, membershipOffset));
  }

  async #untilAnswered(write: () => Promise<ErrorCode>): Promise<WriteOutcome> {
    for (;;) {
      const error = await write();
      if (this.#closed) return 'void';
      if (error === errors.NONE.code) {
        this.#trouble = undefined;
        this.#attempts = 0;
        return 'durable';
      }
      if (FENCED.has(error)) return 'fenced';
      if (error === errors.INVALID_REQUEST.code) return 'refused';
      await this.pause(`the row of the partition is not writable: ${errorName(error)}`);
      if (this.#closed) return 'void';
    }
  }

  /** Waits before the row is looked at again, by default with growing backoff; `why` is shown. */
  async pause(
    why: string,
    cause: MirrorCause = 'DESTINATION_BUSY',
    fixedDelayMs?: number,
  ): Promise<void> {
    const { clock, random } = this.#runtime;
    this.#attempts++;
    const delayMs = fixedDelayMs ?? backoffMs(STORE_BACKOFF, this.#attempts, random);
    const now = clock.wallMs();
    this.#trouble = {
      cause,
      message: why,
      sinceMs: this.#trouble?.sinceMs ?? now,
      nextRetryMs: now + delayMs,
    };
    await new Promise<void>((resolve) => clock.setTimer(delayMs, resolve));
  }
}
