/**
 * TCP between simulated machines, with faults.
 *
 * A machine's name is its host name. A segment that meets a cut wire or a machine without power is
 * held and sent again when the way is free, as TCP does; an end whose segment is held for too long
 * gives up with ETIMEDOUT, the other end knows nothing of it (half-open). Loss therefore shows as
 * delay or as a broken connection, never as missing or reordered bytes. Acknowledgements are not
 * modelled: a one-way cut stops only what travels that way.
 */
import { assert } from '../base/assert.ts';
import { crc32c } from '../base/crc32c.ts';
import type { SeededRandom } from '../base/random.ts';
import type { CloseReason, Connection, Listener, Network } from '../io/runtime.ts';
import { type Segment, SimConnection } from './sim-connection.ts';
import { SimLinks } from './sim-links.ts';
import type { SimProcess } from './sim-process.ts';
import type { Simulator } from './simulator.ts';

/** How long TCP keeps resending before it gives up, in ms. */
const GIVE_UP_MS = 60_000;
/** Ports given out for port 0 and for connecting sockets. */
const FIRST_EPHEMERAL_PORT = 32_768;
/** Before this many no port is reused; enough for any run. */
const MAX_PORT = 1_000_000;

const LOOPBACK_HOSTS = new Set(['127.0.0.1', '::1', 'localhost']);
const ANY_HOSTS = new Set(['0.0.0.0', '::']);

interface ListeningSocket {
  readonly process: SimProcess;
  readonly loopbackOnly: boolean;
  readonly onConnection: (connection: Connection) => void;
}

/** One direction of one connection: first in, first out, whatever happens to the wire. */
interface Direction {
  readonly from: string;
  readonly to: string;
  readonly inTransit: Segment[];
  /** Arrivals that met a cut wire; as many segments must be sent again. */
  stalled: number;
  lastArrivalMs: number;
  receive: (segment: Segment) => void;
  /** Tells the sending end that its segments were held for too long. */
  giveUp: () => void;
  /** Tells both ends that the network has reset the connection. */
  breakBoth: () => void;
}

function newDirection(from: string, to: string): Direction {
  const nobody = (): void => {};
  return {
    from,
    to,
    inTransit: [],
    stalled: 0,
    lastArrivalMs: 0,
    receive: nobody,
    giveUp: nobody,
    breakBoth: nobody,
  };
}

/** The label of a segment in the trace; the checksum makes unequal contents visible. */
function describe({ from, to }: Direction, segment: Segment): string {
  const content =
    segment.kind === 'data' ? ` ${segment.bytes.length} ${crc32c(segment.bytes)}` : '';
  return `net ${from}>${to} ${segment.kind}${content}`;
}

/** See the file header. */
export class SimNetwork {
  readonly links: SimLinks;
  readonly #simulator: Simulator;
  readonly #random: SeededRandom;
  readonly #machines = new Set<string>();
  readonly #listeners = new Map<string, ListeningSocket>();
  readonly #connections = new Set<SimConnection>();
  readonly #stalled = new Set<Direction>();
  #nextPort = FIRST_EPHEMERAL_PORT;

  constructor(simulator: Simulator) {
    this.#simulator = simulator;
    this.#random = simulator.fork('network');
    this.links = new SimLinks(simulator.fork('links'));
  }

  addMachine(name: string): void {
    this.#machines.add(name);
  }

  /** Nothing passes between the machines, in one or both directions. */
  cut(a: string, b: string, directions: 'both' | 'a-to-b' = 'both'): void {
    this.links.cut(a, b);
    if (directions === 'both') this.links.cut(b, a);
    this.#simulator.trace(`network cut ${a} ${b} ${directions}`);
  }

  /** Undoes `cut`; what was held is sent again. */
  heal(a: string, b: string): void {
    this.links.heal(a, b);
    this.links.heal(b, a);
    this.#simulator.trace(`network heal ${a} ${b}`);
    this.#resend();
  }

  /** Undoes every cut. */
  healAll(): void {
    this.links.healAll();
    this.#simulator.trace('network heal all');
    this.#resend();
  }

  /** Breaks every connection between the machines, at both ends. */
  resetConnections(a: string, b: string): void {
    this.#simulator.trace(`network reset ${a} ${b}`);
    for (const connection of [...this.#connections]) {
      const ends = [connection.process.machine, connection.remoteAddress].sort();
      if (ends.join() === [a, b].sort().join()) connection.fail('ECONNRESET', 'connection reset');
    }
  }

  /** A machine loses or regains power. */
  setPower(machine: string, on: boolean): void {
    this.links.setPower(machine, on);
    if (on) this.#resend();
  }

  /** The process is gone: its kernel closes its sockets, unless the kernel is gone too. */
  processEnded(process: SimProcess, kernel: 'lives' | 'gone'): void {
    for (const [key, listener] of this.#listeners) {
      if (listener.process === process) this.#listeners.delete(key);
    }
    for (const connection of [...this.#connections]) {
      if (connection.process !== process) continue;
      if (kernel === 'lives') connection.abandon();
      else connection.forget();
    }
    this.#dropEnded();
  }

  /** The Network port of one process. After its end nothing comes of a call. */
  portFor(process: SimProcess): Network {
    const never = new Promise<never>(() => {});
    return {
      listen: (host, port, onConnection, tls) => {
        assert(tls === undefined, 'TLS is not simulated');
        return process.alive ? this.#listen(process, host, port, onConnection) : never;
      },
      connect: (host, port, timeoutMs, tls) => {
        assert(tls === undefined, 'TLS is not simulated');
        return process.alive ? this.#connect(process, host, port, timeoutMs) : never;
      },
    };
  }

  #listen(
    process: SimProcess,
    host: string,
    port: number,
    onConnection: (connection: Connection) => void,
  ): Promise<Listener> {
    const loopbackOnly = LOOPBACK_HOSTS.has(host);
    const refuse = (code: string): Promise<never> =>
      Promise.reject(new Error(`cannot listen on ${host}:${port}: ${code}`));
    if (!loopbackOnly && !ANY_HOSTS.has(host) && host !== process.machine) {
      return refuse('EADDRNOTAVAIL');
    }
    const bound = port === 0 ? this.#takePort() : port;
    const key = `${process.machine}:${bound}`;
    if (this.#listeners.has(key)) return refuse('EADDRINUSE');
    this.#listeners.set(key, { process, loopbackOnly, onConnection });
    const close = async (): Promise<void> => {
      if (this.#listeners.get(key)?.process === process) this.#listeners.delete(key);
    };
    return Promise.resolve({ host, port: bound, close });
  }

  #connect(
    process: SimProcess,
    host: string,
    port: number,
    timeoutMs: number,
  ): Promise<Connection | CloseReason> {
    const to = LOOPBACK_HOSTS.has(host) ? process.machine : host;
    const peer = `${host}:${port}`;
    return new Promise((resolve) => {
      let settled = false;
      const settle = (answer: Connection | CloseReason): void => {
        settled = true;
        timer.cancel();
        resolve(answer);
      };
      const timer = process.schedule(timeoutMs, `connect timeout ${peer}`, () =>
        settle({ cause: 'timeout', message: `${peer}: no connection within ${timeoutMs} ms` }),
      );
      if (!this.#machines.has(to)) {
        process.schedule(0, `resolve ${host}`, () =>
          settle({ cause: 'ENOTFOUND', message: `${peer}: ENOTFOUND` }),
        );
        return;
      }
      this.#handshake(process, to, port, (answer) => {
        if (!settled && process.alive) settle(answer);
        else if ('write' in answer) answer.close();
      });
    });
  }

  /** Sends `connect`; the answer is `accept`, with both ends joined, or `refuse`. */
  #handshake(
    process: SimProcess,
    to: string,
    port: number,
    answered: (answer: Connection | CloseReason) => void,
  ): void {
    const there = newDirection(process.machine, to);
    const back = newDirection(to, process.machine);
    const client = this.#end(process, to, this.#takePort(), there);
    back.receive = (segment) => {
      if (segment.kind === 'refuse') {
        client.forget();
        this.#dropEnded();
        answered({ cause: 'ECONNREFUSED', message: `${to}:${port}: ECONNREFUSED` });
        return;
      }
      if (segment.kind === 'accept') answered(client);
      else client.receive(segment);
    };
    there.receive = (first) => {
      if (first.kind !== 'connect') return;
      const listener = this.#listeners.get(`${to}:${port}`);
      if (listener === undefined || (listener.loopbackOnly && to !== process.machine)) {
        this.#send(back, { kind: 'refuse' });
        return;
      }
      const server = this.#end(listener.process, process.machine, port, back);
      SimConnection.join(client, server);
      there.receive = (segment) => server.receive(segment);
      there.breakBoth = back.breakBoth = () => {
        for (const end of [client, server]) end.fail('ECONNRESET', 'connection reset');
      };
      this.#send(back, { kind: 'accept' });
      listener.onConnection(server);
    };
    this.#send(there, { kind: 'connect' });
  }

  #end(process: SimProcess, remote: string, port: number, outward: Direction): SimConnection {
    const sender = { send: (segment: Segment): void => this.#send(outward, segment) };
    const end = new SimConnection(process, remote, port, sender, this.#random);
    outward.giveUp = () => end.fail('ETIMEDOUT', 'no acknowledgement');
    this.#connections.add(end);
    return end;
  }

  #send(direction: Direction, segment: Segment): void {
    if (segment.kind === 'data' && this.links.resets(direction.from, direction.to)) {
      direction.breakBoth();
      return;
    }
    direction.inTransit.push(segment);
    this.#scheduleArrival(direction, segment);
  }

  #scheduleArrival(direction: Direction, segment: Segment): void {
    const { from, to } = direction;
    const length = segment.kind === 'data' ? segment.bytes.length : 0;
    const nowMs = this.#simulator.nowMs;
    const arrivalMs = this.links.arrivalMs(from, to, length, nowMs);
    direction.lastArrivalMs = Math.max(direction.lastArrivalMs, arrivalMs);
    const delayMs = direction.lastArrivalMs - nowMs;
    this.#simulator.schedule(delayMs, describe(direction, segment), () => this.#arrive(direction));
  }

  /** The oldest segment arrives, or one more has to be sent again. */
  #arrive(direction: Direction): void {
    const oldest = direction.inTransit[0];
    if (oldest === undefined) return; // given up meanwhile
    if (this.links.passes(direction.from, direction.to)) {
      direction.inTransit.shift();
      direction.receive(oldest);
      this.#dropEnded();
      return;
    }
    direction.stalled++;
    if (direction.stalled > 1) return;
    this.#stalled.add(direction);
    this.#simulator.schedule(GIVE_UP_MS, `net ${direction.from}>${direction.to} give up`, () => {
      if (direction.inTransit[0] !== oldest) return;
      direction.inTransit.length = 0;
      this.#stalled.delete(direction);
      direction.giveUp();
    });
  }

  #resend(): void {
    for (const direction of [...this.#stalled]) {
      if (!this.links.passes(direction.from, direction.to)) continue;
      this.#stalled.delete(direction);
      const again = direction.inTransit.slice(0, direction.stalled);
      direction.stalled = 0;
      for (const segment of again) this.#scheduleArrival(direction, segment);
    }
  }

  #dropEnded(): void {
    for (const connection of this.#connections) {
      if (!connection.open) this.#connections.delete(connection);
    }
  }

  #takePort(): number {
    if (this.#nextPort >= MAX_PORT) throw new Error('no free port');
    return this.#nextPort++;
  }
}
