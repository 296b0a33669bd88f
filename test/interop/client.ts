/**
 * What every client under test offers, so that tests can loop over them: read a whole topic as a
 * canonical sequence, and try to produce one record.
 */
import type { Isolation } from './raw-client.ts';

/** Headers in order, with duplicates; a value may be null. */
export type HeaderList = readonly (readonly [string, Buffer | null])[];

/** A record as a consumer saw it. Java alone tells the timestamp type and the leader epoch. */
export interface ClientRecord {
  readonly partition: number;
  readonly offset: number;
  readonly timestamp: number;
  readonly key: Buffer | null;
  readonly value: Buffer | null;
  readonly headers: HeaderList;
  readonly timestampType?: string;
  readonly leaderEpoch?: number;
}

/** What became of one produced record. */
export interface Attempt {
  /** Set when it was written. */
  readonly offset?: number;
  /** The client's name or code for the error, when it was refused. */
  readonly error?: string;
  readonly message?: string;
  /** Produce requests sent. A refused record must have cost one. */
  readonly attempts: number;
  readonly elapsedMs: number;
}

/** How to read. */
export interface ReadOptions {
  /** The most that one fetch asks for, of a partition; a larger batch comes nevertheless. */
  readonly maxBytes?: number;
}

/** A client under test. */
export interface ClientUnderTest {
  readonly name: string;
  /** False when it keeps header names but not the order of headers with different names. */
  readonly keepsHeaderOrder: boolean;
  readAll(
    bootstrap: string,
    topic: string,
    isolation: Isolation,
    options?: ReadOptions,
  ): Promise<ClientRecord[]>;
  tryProduce(bootstrap: string, topic: string): Promise<Attempt>;
}
