/**
 * The runtime ports: all that a broker may know of time, chance, network and disk.
 *
 * `io/node` implements them for real, `sim` implements them under a seed. Everything else of the
 * product reaches the outside through these interfaces only (`tidy.test.ts` enforces it).
 *
 * - Disk calls are synchronous: an append is a copy into the page cache (measured cheaper than a
 *   thread-pool hop), and a partition is never seen between two halves of an append. What can take
 *   long, making bytes durable, is `sync`, and that is asynchronous.
 * - A failing disk or network call is an operating error, {@link DiskError} or a close reason; it
 *   is handled where it happens, never swallowed.
 */
import type { Logger } from '../base/logger.ts';

/** Stops a pending timer; calling it again does nothing. */
export interface Timer {
  cancel(): void;
}

/** Wall time for records and people; monotonic time for delays and time-outs. */
export interface Clock {
  /** Milliseconds since 1970 (may jump). */
  wallMs(): number;
  /** Milliseconds since some start, with fractions (never goes back). */
  monotonicMs(): number;
  /** Runs `callback` once after `delayMs`. */
  setTimer(delayMs: number, callback: () => void): Timer;
  /** Runs `callback` after what is now queued, before time moves on. */
  defer(callback: () => void): void;
}

/** Unpredictable (real) or seeded (simulated) randomness. */
export interface Random {
  /** A float in [0, 1). */
  fraction(): number;
  bytes(length: number): Uint8Array;
}

/** Why a disk call failed: `code` is the errno name (ENOSPC, EIO, ENOENT, …). */
export class DiskError extends Error {
  override readonly name = 'DiskError';
  readonly code: string;
  readonly path: string;
  constructor(code: string, operation: string, path: string) {
    super(`${operation} ${path}: ${code}`);
    this.code = code;
    this.path = path;
  }
}

/** An open file. Every call but `sync` is synchronous; every call may throw {@link DiskError}. */
export interface DiskFile {
  readonly path: string;
  size(): number;
  /** Reads up to `target.length` bytes at `position`; returns how many (0 at the end). */
  read(target: Uint8Array, position: number): number;
  /** Writes all bytes of all `chunks` at `position`, or throws; a failed write may be partial. */
  write(chunks: readonly Uint8Array[], position: number): void;
  truncate(size: number): void;
  /** Resolves when what was written before the call is durable; rejects with {@link DiskError}. */
  sync(): Promise<void>;
  /** The same, blocking: for small files at start, stop and rare checkpoints. */
  syncNow(): void;
  close(): void;
}

/** A name in a directory. */
export interface DirectoryEntry {
  readonly name: string;
  readonly isDirectory: boolean;
}

/** A file system. Paths are absolute or relative to the process; `/` separates. */
export interface Disk {
  /** `read` and `update` (read and write): must exist. `create`: read, write, made if absent. */
  open(path: string, mode: 'read' | 'update' | 'create'): DiskFile;
  /** Undefined when there is no such file. */
  readFile(path: string): Uint8Array | undefined;
  /** Undefined when there is no such directory; sorted by name. */
  list(path: string): DirectoryEntry[] | undefined;
  /** Size in bytes, or undefined when there is no such file. */
  fileSize(path: string): number | undefined;
  /** Makes the directory and its parents; nothing happens when it exists. */
  makeDirectory(path: string): void;
  /** Atomic within a file system. Replaces a file at `to`. */
  rename(from: string, to: string): void;
  /** Removes a file, or a directory with all it holds; nothing happens when it does not exist. */
  remove(path: string): void;
  /** Makes creations, renames and removals in the directory durable. */
  syncDirectory(path: string): void;
  /** Takes an exclusive lock file for this process. Undefined: another live process has it. */
  lock(path: string): { release(): void } | undefined;
}

/**
 * Why a connection ended. `cause` is an errno name, `closed` for an orderly end by the peer, or
 * `authentication`: no TLS came to be, or one side did not accept the other's certificate.
 */
export interface CloseReason {
  readonly cause: string;
  readonly message: string;
}

/** What a connection tells its owner. Calls come one at a time, never from inside `write`. */
export interface ConnectionOwner {
  /**
   * Where the next received bytes shall go. Must have room for at least 1 byte. Asked before every
   * read, so that a reader who knows the frame length has the bytes put where they belong.
   */
  receiveBuffer(): Uint8Array;
  /** The first `length` bytes of the last `receiveBuffer()` are filled. */
  received(length: number): void;
  /** Queued bytes fell below the low mark after `write` had returned false. */
  writable(): void;
  /** Once, last. Not called after `close()` by the owner itself. */
  closed(reason: CloseReason): void;
}

/** An established byte stream. */
export interface Connection {
  readonly remoteAddress: string;
  readonly localPort: number;
  /** Subject of the peer's verified certificate as RFC 2253 text; undefined: it showed none. */
  readonly peerSubject?: string | undefined;
  /** Must be called once, at once; nothing is received before. */
  start(owner: ConnectionOwner): void;
  /**
   * Queues all chunks in order (not copied: leave them untouched until `sent`, which is called
   * unless the connection ends before). False: wait for `writable`.
   */
  write(chunks: readonly Uint8Array[], sent?: () => void): boolean;
  /** Stops (or resumes) receiving: back-pressure towards the peer. */
  pause(): void;
  resume(): void;
  /** Ends the connection now; queued bytes may be lost. */
  close(): void;
  /** Bytes queued for sending. */
  queuedBytes(): number;
}

/** A listening socket. */
export interface Listener {
  readonly host: string;
  readonly port: number;
  /** Stops accepting; open connections stay. */
  close(): Promise<void>;
}

/** A certificate with its key, as PEM. */
export interface TlsIdentity {
  /** The certificate first, then those that signed it. */
  readonly certificateChain: string;
  readonly key: string;
  readonly keyPassword?: string | undefined;
}

/** How a connecting side speaks TLS. */
export interface TlsClientOptions {
  /** PEM certificates; undefined: those that the system trusts. */
  readonly trusted?: string | undefined;
  /** Shown to a peer that asks for it. */
  readonly identity?: TlsIdentity | undefined;
  /** Whether the peer's certificate must name the host that was dialled. */
  readonly checkHostName: boolean;
}

/** How a listening side speaks TLS. */
export interface TlsServerOptions {
  readonly identity: TlsIdentity;
  /** PEM certificates that clients' are checked against; undefined: the system's. */
  readonly trusted?: string | undefined;
  /** Whether clients must, may or need not show a certificate (`ssl.client.auth`). */
  readonly clientAuth: 'none' | 'requested' | 'required';
}

/** TCP, with TLS over it where options for it are given. */
export interface Network {
  /** Port 0 picks a free one. Rejects with an Error whose message names address and errno. */
  listen(
    host: string,
    port: number,
    onConnection: (connection: Connection) => void,
    tls?: TlsServerOptions,
  ): Promise<Listener>;
  /** Resolves when connected, or with the reason why not; never rejects. */
  connect(
    host: string,
    port: number,
    timeoutMs: number,
    tls?: TlsClientOptions,
  ): Promise<Connection | CloseReason>;
}

/** The hash functions of Kafka's SCRAM mechanisms. */
export type HashAlgorithm = 'sha256' | 'sha512';

/** Primitives of authentication. */
export interface Crypto {
  hash(algorithm: HashAlgorithm, bytes: Uint8Array): Uint8Array;
  hmac(algorithm: HashAlgorithm, key: Uint8Array, bytes: Uint8Array): Uint8Array;
  /** PBKDF2 with as many bytes as the hash has; off the event loop. */
  pbkdf2(
    algorithm: HashAlgorithm,
    password: Uint8Array,
    salt: Uint8Array,
    iterations: number,
  ): Promise<Uint8Array>;
  /** In a time that does not depend on where they differ; false for different lengths. */
  equal(a: Uint8Array, b: Uint8Array): boolean;
  /** Fit for secrets. */
  randomBytes(length: number): Uint8Array;
}

/** Kafka's compression codecs by their attribute bits (1..4). */
export type CompressionType = 'none' | 'gzip' | 'snappy' | 'lz4' | 'zstd';

/** Whole-buffer compression of record batch payloads, in the framing Kafka uses for each codec. */
export interface Compression {
  compress(type: CompressionType, bytes: Uint8Array): Uint8Array;
  /** Throws RangeError when the data is malformed or inflates beyond `maxBytes`. */
  decompress(type: CompressionType, bytes: Uint8Array, maxBytes: number): Uint8Array;
}

/** Everything from outside, handed to the composition root and from there to every part. */
export interface Runtime {
  readonly clock: Clock;
  readonly random: Random;
  readonly disk: Disk;
  readonly network: Network;
  readonly compression: Compression;
  readonly crypto: Crypto;
  readonly logger: Logger;
}
