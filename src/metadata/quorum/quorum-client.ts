/**
 * Finds the active controller of an Apache Kafka KRaft quorum, and keeps connections to it.
 *
 * Used by the metadata observer and the remote controller; one per process. Any controller, asked
 * for the metadata log with an epoch that is too old, names leader, epoch and endpoint; what the
 * first answers say of other controllers is remembered, so that a bootstrap address may go away.
 * Invariants:
 * - One connection per purpose: a heartbeat never waits behind other requests (rule G5).
 * - A request is tried again only where the answer says that nothing was done, or where the
 *   connection ended; then it may have been done, and who asks must bear that.
 * - Nothing is asked of a cluster with another id than the given one.
 */
import type { Runtime } from '../../io/runtime.ts';
import type { ConnectionSecurity } from '../../protocol/connection-security.ts';
import { errors } from '../../protocol/errors.ts';
import { ConnectionError, KafkaConnection } from '../../protocol/kafka-connection.ts';
import type { EncodableOf, Message, MessageOf } from '../../protocol/schema.ts';
import {
  addressText,
  type ControllerAddress,
  type HostPort,
  probe,
  WrongCluster,
} from './probe.ts';

/** How long dialling a controller may take, in ms. */
const CONNECT_TIMEOUT_MS = 2_000;
/** How long a node may take for each question who leads, in ms: one that hangs is passed. */
const PROBE_TIMEOUT_MS = 1_500;
/** How long one try of a request may take, in ms, unless the caller says otherwise. */
const REQUEST_TIMEOUT_MS = 30_000;
/** A try takes no less than this, in ms, even where the time is nearly over. */
const MIN_TRY_MS = 500;
/** How long a request is tried in all, in ms, unless the caller says otherwise. */
const SEND_TIMEOUT_MS = 30_000;
/** Pauses between tries, in ms: doubling from the first to the last. */
const PAUSE_MS = { first: 50, last: 1_000 } as const;
/** Addresses remembered beyond the bootstrap ones; the oldest go first. */
const MAX_KNOWN_CONTROLLERS = 32;

/** No active controller could be reached in time, or the client is closed. */
export class QuorumUnavailable extends Error {
  override readonly name = 'QuorumUnavailable';
}

/** Every controller that could be reached refuses to authenticate this node, or is not trusted. */
export class NotAuthenticated extends QuorumUnavailable {
  /** Whether the one who asks shall not try again. */
  readonly isFinal: boolean;
  constructor(message: string, isFinal = false) {
    super(message);
    this.isFinal = isFinal;
  }
}

/** What a {@link QuorumClient} needs to know. */
export interface QuorumClientOptions {
  readonly bootstrapControllers: readonly HostPort[];
  /** Undefined: that of the first controller that answers. */
  readonly clusterId: string | undefined;
  readonly clientId: string;
  readonly security?: ConnectionSecurity | undefined;
}

/** Limits of one request. */
export interface QuorumSendOptions {
  /** For all tries together, in ms. */
  readonly timeoutMs?: number;
  /** For one try, in ms. */
  readonly tryTimeoutMs?: number;
  /** No version above this is used. */
  readonly maxVersion?: number;
}

/** The active controller. */
export interface QuorumLeader extends ControllerAddress {
  readonly epoch: number;
}

/** What an answer says about the leader; −1 where it says nothing. */
export interface LeaderHint {
  readonly leaderId: number;
  readonly leaderEpoch: number;
  readonly endpoints: readonly ControllerAddress[];
}

/** A connection to the active controller, as of the time it was given out. */
export interface LeaderConnection {
  readonly leader: QuorumLeader;
  readonly connection: KafkaConnection;
}

/** Whether an answer, or any part of it, says that this node is not the active controller. */
export function saysNotController(value: unknown): boolean {
  if (Array.isArray(value)) return value.some(saysNotController);
  if (typeof value !== 'object' || value === null || ArrayBuffer.isView(value)) return false;
  return Object.entries(value).some(([name, field]) =>
    name === 'errorCode'
      ? field === errors.NOT_CONTROLLER.code || field === errors.NOT_LEADER_OR_FOLLOWER.code
      : saysNotController(field),
  );
}

/** See the file header. */
export class QuorumClient {
  readonly #runtime: Pick<Runtime, 'clock' | 'network' | 'crypto' | 'logger'>;
  readonly #options: QuorumClientOptions;
  readonly #connections = new Map<string, LeaderConnection>();
  readonly #dialling = new Map<string, Promise<LeaderConnection>>();
  /** By node id, the last one heard of last. */
  readonly #controllers = new Map<number, ControllerAddress>();
  #clusterId: string | undefined;
  #leader: QuorumLeader | undefined;
  /** The leader given up last: maybe it hangs, so others are asked first. */
  #lost: HostPort | undefined;
  /** The newest epoch heard of: a leader of an older one has been deposed and may not know. */
  #epoch = -1;
  #finding: Promise<QuorumLeader> | undefined;
  #closed = false;

  constructor(
    runtime: Pick<Runtime, 'clock' | 'network' | 'crypto' | 'logger'>,
    options: QuorumClientOptions,
  ) {
    this.#runtime = runtime;
    this.#options = options;
    this.#clusterId = options.clusterId;
  }

  /** Undefined until a controller has answered, unless it was given. */
  get clusterId(): string | undefined {
    return this.#clusterId;
  }

  /** The active controller last heard of. */
  get leader(): QuorumLeader | undefined {
    return this.#leader;
  }

  /** Node ids of all controllers heard of. */
  get controllerIds(): readonly number[] {
    return [...this.#controllers.keys()];
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Ends all connections; requests under way reject. */
  close(): void {
    this.#closed = true;
    for (const { connection } of this.#connections.values()) connection.close();
    this.#connections.clear();
  }

  /** Ends the connection of a purpose; what is under way on it rejects. */
  release(purpose: string): void {
    this.#connections.get(purpose)?.connection.close();
    this.#connections.delete(purpose);
  }

  /** Takes a leader that an answer names, unless a newer epoch has been heard of. */
  heard(hint: LeaderHint): void {
    for (const each of hint.endpoints) this.#remember(each);
    const { leaderId, leaderEpoch } = hint;
    if (leaderEpoch < this.#epoch) return;
    this.#epoch = leaderEpoch;
    const address = this.#controllers.get(leaderId);
    if (address !== undefined) this.#leader = { ...address, epoch: leaderEpoch };
  }

  /** Forgets the leader: it could not be reached, or says that it is none. */
  lost(leader: QuorumLeader): void {
    if (this.#leader?.nodeId !== leader.nodeId) return;
    this.#leader = undefined;
    this.#lost = leader;
  }

  /** Connects to the active controller; rejects when that does not succeed at once. */
  async connect(purpose: string): Promise<LeaderConnection> {
    const leader = this.#leader ?? (await this.#find());
    const known = this.#connections.get(purpose);
    if (known?.leader.nodeId === leader.nodeId && known.connection.ended === undefined) {
      return { leader, connection: known.connection };
    }
    const dialling = this.#dialling.get(purpose) ?? this.#dial(purpose, leader);
    this.#dialling.set(purpose, dialling);
    try {
      return await dialling;
    } finally {
      this.#dialling.delete(purpose);
    }
  }

  async #dial(purpose: string, leader: QuorumLeader): Promise<LeaderConnection> {
    this.release(purpose);
    try {
      const connection = await this.#connection(leader);
      const made = { leader, connection };
      this.#connections.set(purpose, made);
      return made;
    } catch (error) {
      this.lost(leader);
      throw error;
    }
  }

  async #connection(
    { host, port }: HostPort,
    requestTimeoutMs = REQUEST_TIMEOUT_MS,
  ): Promise<KafkaConnection> {
    if (this.#closed) throw this.#closedError();
    const connection = await KafkaConnection.connect(this.#runtime, {
      host,
      port,
      clientId: this.#options.clientId,
      security: this.#options.security,
      connectTimeoutMs: CONNECT_TIMEOUT_MS,
      requestTimeoutMs,
    });
    if (!this.#closed) return connection;
    connection.close();
    throw this.#closedError();
  }

  #closedError(): QuorumUnavailable {
    return new QuorumUnavailable('the connection to the controllers has been closed');
  }

  /** Sends a request to the active controller, wherever it moves, until it answers. */
  async send<Q extends Message, R extends Message>(
    purpose: string,
    request: Q,
    response: R,
    value: EncodableOf<Q>,
    options: QuorumSendOptions = {},
  ): Promise<MessageOf<R>> {
    return await this.retry(options.timeoutMs, async (remainingMs) => {
      const { leader, connection } = await this.connect(purpose);
      const leftMs = Math.max(Math.ceil(remainingMs), MIN_TRY_MS);
      const tryMs = Math.min(options.tryTimeoutMs ?? REQUEST_TIMEOUT_MS, leftMs);
      const limits = options.maxVersion === undefined ? {} : { maxVersion: options.maxVersion };
      const answer = await this.#exchange(leader, () =>
        connection.send(request, response, value, { timeoutMs: tryMs, ...limits }),
      );
      if (!saysNotController(answer)) return answer;
      this.lost(leader);
      throw new QuorumUnavailable(`node ${leader.nodeId} is not the active controller`);
    });
  }

  async #exchange<T>(leader: QuorumLeader, send: () => Promise<T>): Promise<T> {
    try {
      return await send();
    } catch (error) {
      // A queue that is full on our side says nothing of the leader.
      const isOurs = error instanceof ConnectionError && error.cause === 'overloaded';
      if (isPassing(error) && !isOurs) this.lost(leader);
      throw error;
    }
  }

  /** Runs `attempt` until it succeeds, fails for good, or the time is over. */
  async retry<T>(
    timeoutMs: number | undefined,
    attempt: (remainingMs: number) => Promise<T>,
  ): Promise<T> {
    const { clock } = this.#runtime;
    const deadlineMs = clock.monotonicMs() + (timeoutMs ?? SEND_TIMEOUT_MS);
    for (let failures = 0; ; failures++) {
      try {
        return await attempt(deadlineMs - clock.monotonicMs());
      } catch (error) {
        if (!isPassing(error) || this.#closed) throw error;
        const pauseMs = retryPauseMs(failures);
        if (clock.monotonicMs() + pauseMs >= deadlineMs) throw unavailable(error);
        await this.pause(pauseMs);
      }
    }
  }

  /** Resolves after `ms`. */
  pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.#runtime.clock.setTimer(ms, resolve);
    });
  }

  /** One search at a time, whoever needs it. */
  async #find(): Promise<QuorumLeader> {
    this.#finding ??= this.#search();
    try {
      return await this.#finding;
    } finally {
      this.#finding = undefined;
    }
  }

  async #search(): Promise<QuorumLeader> {
    const problems: string[] = [];
    const causes = new Set<string>();
    for (const address of this.#candidates()) {
      try {
        await this.#ask(address);
      } catch (error) {
        if (!isPassing(error) || this.#closed) throw error;
        problems.push(error.message);
        causes.add(error instanceof ConnectionError ? error.cause : error.name);
      }
      if (this.#leader !== undefined) return this.#leader;
    }
    const why = problems.length === 0 ? 'none of them knows a leader' : problems.join('; ');
    const isRefused = causes.size === 1 && causes.has('authentication');
    if (isRefused) throw new NotAuthenticated(`no controller to be had: ${why}`);
    throw new QuorumUnavailable(`no active controller: ${why}`);
  }

  #candidates(): HostPort[] {
    const all = [
      ...[...this.#controllers.values()].reverse(),
      ...this.#options.bootstrapControllers,
    ];
    const byAddress = new Map<string, HostPort>();
    for (const each of all)
      if (!byAddress.has(addressText(each))) byAddress.set(addressText(each), each);
    const lost = this.#lost === undefined ? '' : addressText(this.#lost);
    const last = byAddress.get(lost);
    byAddress.delete(lost);
    return last === undefined ? [...byAddress.values()] : [...byAddress.values(), last];
  }

  async #ask(address: HostPort): Promise<void> {
    const connection = await this.#connection(address, PROBE_TIMEOUT_MS);
    try {
      const found = await probe(connection, this.#clusterId);
      if (this.#clusterId === undefined && found.clusterId !== undefined) {
        this.#clusterId = found.clusterId;
      }
      for (const each of found.controllers) this.#remember(each);
      this.heard(found.leader);
      this.#runtime.logger.debug('asked a controller for the leader', {
        address: addressText(address),
        leader: this.#leader?.nodeId,
      });
    } finally {
      connection.close();
    }
  }

  #remember(controller: ControllerAddress): void {
    const { nodeId, host, port } = controller;
    this.#controllers.delete(nodeId);
    this.#controllers.set(nodeId, { nodeId, host, port });
    for (const id of this.#controllers.keys()) {
      if (this.#controllers.size <= MAX_KNOWN_CONTROLLERS) break;
      this.#controllers.delete(id);
    }
  }
}

/** The pause before the next try, in ms, after so many failures in a row (0: the first). */
export function retryPauseMs(failures: number): number {
  return Math.min(PAUSE_MS.first * 2 ** Math.min(failures, 10), PAUSE_MS.last);
}

/** Whether trying again, maybe elsewhere, may help. */
export function isPassing(error: unknown): error is Error {
  if (error instanceof WrongCluster) return false;
  if (error instanceof NotAuthenticated && error.isFinal) return false;
  if (error instanceof ConnectionError) return error.cause !== 'unsupportedVersion';
  return error instanceof QuorumUnavailable;
}

function unavailable(error: Error): QuorumUnavailable {
  return error instanceof QuorumUnavailable ? error : new QuorumUnavailable(error.message);
}
