/**
 * One TCP or TLS connection behind the Connection port.
 *
 * A connection reads straight into the owner's buffer (`onread`; only the bytes that arrive before
 * `start` and before the first ask are copied). Where Node does not allow that (TLS, see also
 * node-network.ts), its chunks are copied. Owners see no difference.
 *
 * - Nothing is delivered before `start`, while paused, after `close()` or after `closed`.
 * - The peer's end of stream ends the connection; there is no half-open state.
 */
import type { Socket } from 'node:net';
import type { CloseReason, Connection, ConnectionOwner } from '../runtime.ts';

/** From here on `write` answers false; the owner then waits for all of it to leave. */
const WRITE_HIGH_MARK_BYTES = 1024 * 1024;
/** Where bytes land that arrive before the owner was asked for a buffer. */
const FIRST_READ_BYTES = 4096;

/** What {@link NodeConnection} needs of `net.connect` to be asked for every read's buffer. */
export interface DirectReads {
  buffer(): Uint8Array;
  callback(length: number, buffer: Uint8Array): boolean;
}

/** Node names what is wrong with certificates without a leading E, and the rest of TLS so. */
function isTlsError(code: string): boolean {
  return !code.startsWith('E') || code === 'EPROTO' || /^ERR_(SSL|TLS)_/.test(code);
}

/** Describes an operating system, resolver or TLS error as a close reason. */
export function closeReason(error: Error, peer: string): CloseReason {
  const code = (error as NodeJS.ErrnoException).code ?? 'EIO';
  const message = `${peer}: ${error.message === '' ? code : error.message}`;
  if (!isTlsError(code)) return { cause: code, message };
  return { cause: 'authentication', message: `${peer}: TLS: ${error.message.trim()}` };
}

/** See the file header. Built by `node-network.ts` with a socket that is paused. */
export class NodeConnection implements Connection {
  readonly remoteAddress: string;
  readonly localPort: number;
  readonly peerSubject: string | undefined;
  readonly #socket: Socket;
  readonly #peer: string;
  #owner: ConnectionOwner | undefined;
  /** The buffer the next direct read fills, when it is the owner's. */
  #lent: Uint8Array | undefined;
  /** Bytes that arrived but could not be delivered because the owner paused. */
  #held: Uint8Array | undefined;
  #paused = false;
  #ended: CloseReason | undefined;
  #done = false;
  #awaitingDrain = false;
  #redeliveryQueued = false;

  constructor(socket: Socket, reads: 'direct' | 'copied', peerSubject?: string) {
    this.#socket = socket;
    this.peerSubject = peerSubject;
    this.remoteAddress = (socket.remoteAddress ?? '').replace(/^::ffff:/, ''); // IPv4 in IPv6
    this.localPort = socket.localPort ?? 0;
    this.#peer = `${this.remoteAddress}:${socket.remotePort ?? 0}`;
    if (reads === 'copied') socket.on('data', (chunk: Uint8Array) => this.#deliver(chunk));
    // Without a read under way the first `resume` begins one a tick later, whoever paused since.
    else socket.read(0);
    socket.pause();
    socket.on('drain', () => this.#drained());
    socket.on('end', () =>
      this.#end({ cause: 'closed', message: `${this.#peer}: closed by peer` }),
    );
    socket.on('error', (error) => this.#end(closeReason(error, this.#peer)));
    socket.on('close', () => this.#end({ cause: 'closed', message: `${this.#peer}: closed` }));
  }

  start(owner: ConnectionOwner): void {
    this.#owner = owner;
    if (this.#ended !== undefined) setImmediate(() => this.#tellClosed());
    else this.#socket.resume();
  }

  write(chunks: readonly Uint8Array[], sent?: () => void): boolean {
    if (this.#ended !== undefined || this.#done) return true; // `closed` tells the rest
    this.#socket.cork();
    const last = chunks.length - 1;
    for (const [index, chunk] of chunks.entries()) {
      if (index < last || sent === undefined) this.#socket.write(chunk);
      else this.#socket.write(chunk, (error) => error ?? sent());
    }
    this.#socket.uncork();
    const full =
      this.#socket.writableNeedDrain && this.#socket.writableLength >= WRITE_HIGH_MARK_BYTES;
    if (full) this.#awaitingDrain = true;
    return !full;
  }

  pause(): void {
    this.#paused = true;
    this.#socket.pause();
  }

  resume(): void {
    if (!this.#paused) return;
    this.#paused = false;
    if (this.#held === undefined) this.#socket.resume();
    else if (!this.#redeliveryQueued) {
      this.#redeliveryQueued = true;
      setImmediate(() => this.#redeliver());
    }
  }

  close(): void {
    this.#done = true;
    this.#held = undefined;
    this.#socket.destroy();
  }

  queuedBytes(): number {
    return this.#socket.writableLength;
  }

  /** The buffer for the next direct read. */
  lendBuffer(): Uint8Array {
    this.#lent = this.#done || this.#ended !== undefined ? undefined : this.#owner?.receiveBuffer();
    return this.#lent ?? new Uint8Array(FIRST_READ_BYTES);
  }

  /** A direct read has put `length` bytes into `buffer`. */
  directRead(length: number, buffer: Uint8Array): void {
    if (buffer !== this.#lent) this.#deliver(buffer.subarray(0, length));
    else if (!this.#done) this.#owner!.received(length);
  }

  /** Copies into the owner's buffers until all is taken, or the owner pauses or closes. */
  #deliver(bytes: Uint8Array): void {
    let rest = bytes;
    while (rest.length > 0 && !this.#paused && !this.#done) {
      const target = this.#owner!.receiveBuffer();
      const length = Math.min(target.length, rest.length);
      target.set(rest.subarray(0, length));
      rest = rest.subarray(length);
      this.#owner!.received(length);
    }
    this.#held = rest.length > 0 && !this.#done ? rest : undefined;
  }

  #redeliver(): void {
    this.#redeliveryQueued = false;
    if (this.#paused || this.#done || this.#held === undefined) return;
    this.#deliver(this.#held);
    if (this.#held !== undefined || this.#paused || this.#done) return;
    if (this.#ended === undefined) this.#socket.resume();
    else this.#tellClosed();
  }

  #drained(): void {
    if (!this.#awaitingDrain || this.#done) return;
    this.#awaitingDrain = false;
    this.#owner?.writable();
  }

  #end(reason: CloseReason): void {
    if (this.#ended !== undefined || this.#done) return;
    this.#ended = reason;
    this.#socket.destroy();
    if (this.#owner !== undefined) this.#tellClosed();
  }

  #tellClosed(): void {
    if (this.#done) return;
    this.#done = true;
    this.#owner!.closed(this.#ended!);
  }
}
