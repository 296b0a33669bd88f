/**
 * This broker's place in its cluster: registers, sends heartbeats, and leaves in good order.
 *
 * The controller is reached through its port only, wherever it lives. Invariants:
 * - Heartbeats report the metadata offset that was really applied; one that fails is tried again at
 *   the next turn; there is never more than one under way, so that wishes do not overtake.
 * - A broker epoch is used only after the controller gave it. One that is no longer known is asked
 *   for again with the same incarnation.
 */
import type { Uuid } from '../base/uuid.ts';
import type { Runtime, Timer } from '../io/runtime.ts';
import type { ControllerPort } from '../metadata/controller-port.ts';
import { supportedFeatures } from '../metadata/features.ts';
import type { FeatureRange } from '../metadata/image.ts';
import { isPassing } from '../metadata/quorum/quorum-client.ts';
import { errorMessage, errorName, errors } from '../protocol/errors.ts';
import type { BrokerHeartbeatResponse } from '../protocol/messages/63-broker-heartbeat.ts';
import type { ListenerAddress } from './broker-config.ts';

/** Default of broker.heartbeat.interval.ms. */
export const HEARTBEAT_INTERVAL_MS = 2_000;
/** Pause between heartbeats while the broker waits to be fenced or unfenced. */
const FAST_HEARTBEAT_MS = 50;
/** The same while it waits to be let go, which needs a heartbeat of every other broker. */
const LEAVE_HEARTBEAT_MS = 100;
/** Heartbeats that a stopping broker waits for the controller to let it go. */
const MAX_SHUTDOWN_HEARTBEATS = 100;
/** Pause between registrations while another incarnation holds the id. */
const DUPLICATE_RETRY_MS = 500;
/**
 * How long a guest waits for the session of an earlier incarnation to run out (rule G4): well above
 * the 9 s that a session takes by default.
 */
export const DUPLICATE_PATIENCE_MS = 30_000;
const SECURITY_PLAINTEXT = 0;

/** A listener as others are told of it. */
export interface RegisteredListener extends ListenerAddress {
  /** 0 PLAINTEXT (the default), 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL. */
  readonly securityProtocol?: number;
}

/** Who registers. */
export interface RegistrationOptions {
  readonly brokerId: number;
  readonly clusterId: string;
  readonly incarnationId: Uuid;
  readonly directoryId: Uuid;
  readonly rack: string | null;
  readonly listeners: readonly RegisteredListener[];
  /** Last metadata offset applied. */
  readonly appliedOffset: () => number;
  /** Default: those of a broker with an embedded controller. */
  readonly features?: readonly FeatureRange[];
  /** The epoch of the last registration from this data directory (rule G4); default −1. */
  readonly previousBrokerEpoch?: number;
  /** Directories that take no new replicas (rule G7); asked for each heartbeat. Null: not told. */
  readonly cordonedLogDirs?: () => readonly Uuid[] | null;
  /** Pause between heartbeats, in ms; default {@link HEARTBEAT_INTERVAL_MS}. */
  readonly heartbeatIntervalMs?: number;
  /** How long to wait for an id that another incarnation holds, in ms; default: not at all. */
  readonly duplicatePatienceMs?: number;
  /** Told of every broker epoch before it is used, to be kept for the next start. */
  readonly onRegistered?: (brokerEpoch: number) => void;
}

interface Wish {
  readonly fence?: true;
  readonly shutDown?: true;
}

/** One fencing and unfencing, for all who asked for it before the unfencing began. */
interface Refence {
  isJoinable: boolean;
  done: Promise<void>;
}

/** See the file header. */
export class BrokerRegistration {
  readonly #runtime: Runtime;
  readonly #controller: ControllerPort;
  readonly #options: RegistrationOptions;
  #epoch = -1;
  #timer: Timer | undefined;
  #stopped = false;
  /** The heartbeat under way, or the last one. */
  #last: Promise<unknown> = Promise.resolve();
  /** Heartbeats under way or waiting for the one before. */
  #pending = 0;
  #refence: Refence | undefined;

  constructor(runtime: Runtime, controller: ControllerPort, options: RegistrationOptions) {
    this.#runtime = runtime;
    this.#controller = controller;
    this.#options = options;
  }

  /** −1 before the registration. */
  get epoch(): number {
    return this.#epoch;
  }

  /** Registers; rejects with a sentence when the controller refuses. */
  async register(): Promise<void> {
    const { clock, logger } = this.#runtime;
    const { brokerId, duplicatePatienceMs = 0 } = this.#options;
    const deadlineMs = clock.monotonicMs() + duplicatePatienceMs;
    for (let tries = 1; ; tries++) {
      const errorCode = await this.#registerOnce();
      if (errorCode === errors.NONE.code) return;
      const mayEnd =
        errorCode === errors.DUPLICATE_BROKER_REGISTRATION.code &&
        clock.monotonicMs() + DUPLICATE_RETRY_MS < deadlineMs;
      if (!mayEnd) throw new Error(this.#refusal(errorCode));
      if (tries === 1) {
        logger.info('waiting for the session of an earlier incarnation to end', { brokerId });
      }
      await this.#pause(DUPLICATE_RETRY_MS);
    }
  }

  async #registerOnce(): Promise<number> {
    const { rack, features = supportedFeatures, ...options } = this.#options;
    const response = await this.#controller.registerBroker({
      brokerId: options.brokerId,
      clusterId: options.clusterId,
      incarnationId: options.incarnationId,
      listeners: options.listeners.map(({ name, host, port, securityProtocol }) => ({
        name,
        host,
        port,
        securityProtocol: securityProtocol ?? SECURITY_PLAINTEXT,
      })),
      features: features.map((feature) => ({ ...feature })),
      rack,
      isMigratingZkBroker: false,
      logDirs: [options.directoryId],
      previousBrokerEpoch: options.previousBrokerEpoch ?? -1,
    });
    if (response.errorCode !== errors.NONE.code) return response.errorCode;
    options.onRegistered?.(response.brokerEpoch);
    this.#epoch = response.brokerEpoch;
    return errors.NONE.code;
  }

  #refusal(errorCode: number): string {
    const { brokerId } = this.#options;
    const why = registrationProblem(errorCode, this.#options);
    return `the controller refuses broker ${brokerId}: ${errorName(errorCode)}: ${why}`;
  }

  /**
   * Gives up what this incarnation led before the process started: it may have been cut since its
   * leader epoch began (T5), and a crash forgot which new epochs it owed.
   */
  async fence(): Promise<void> {
    await this.#until((response) => response.isFenced, { fence: true });
  }

  /** Sends heartbeats until the controller unfences the broker, then goes on in the background. */
  async unfence(): Promise<void> {
    await this.#until((response) => !response.isFenced, {});
    this.#schedule();
  }

  /**
   * Has the broker fenced and unfenced again: every partition it leads loses its leader and gets it
   * back, with leader epochs two higher. Calls that come before the unfencing share one round.
   * Rejects when the broker stops meanwhile.
   */
  refence(): Promise<void> {
    const current = this.#refence;
    if (current?.isJoinable) return current.done;
    const round: Refence = { isJoinable: true, done: Promise.resolve() };
    round.done = this.#runRefence(round, current?.done);
    this.#refence = round;
    return round.done;
  }

  async #runRefence(round: Refence, previous: Promise<void> | undefined): Promise<void> {
    // Whoever asked for that round hears how it ended.
    await previous?.catch(() => undefined);
    this.#timer?.cancel();
    try {
      await this.#until((response) => response.isFenced, { fence: true });
      round.isJoinable = false;
      await this.#until((response) => !response.isFenced, {});
    } finally {
      if (this.#refence === round) this.#refence = undefined;
      this.#schedule();
    }
  }

  /** One heartbeat now, for what others wait for (an offset, a cordon); rejects as it does. */
  async sendHeartbeat(): Promise<void> {
    await this.#heartbeat({});
  }

  /** Heartbeats in quick succession until one is answered as wanted. */
  async #until(isDone: (response: BrokerHeartbeatResponse) => boolean, wish: Wish): Promise<void> {
    for (;;) {
      if (this.#stopped) throw new Error(`broker ${this.#options.brokerId} is stopping`);
      const response = await this.#heard(wish);
      if (response?.errorCode === errors.NONE.code && isDone(response)) return;
      if (response !== undefined) await this.#maybeRegisterAgain(response.errorCode);
      await this.#pause(FAST_HEARTBEAT_MS);
    }
  }

  /** Undefined when no controller could be reached in time. */
  async #heard(wish: Wish): Promise<BrokerHeartbeatResponse | undefined> {
    try {
      return await this.#heartbeat(wish);
    } catch (error) {
      if (!isPassing(error)) throw error;
      this.#runtime.logger.warn('heartbeat failed', { error: error.message });
      return undefined;
    }
  }

  /**
   * Controlled shutdown: waits, within bounds, until the controller lets the broker go. Never
   * rejects: a controller that is gone must not keep the broker from closing its logs.
   */
  async leave(): Promise<void> {
    this.#stopped = true;
    this.#timer?.cancel();
    try {
      for (let i = 0; i < MAX_SHUTDOWN_HEARTBEATS; i++) {
        const response = await this.#heartbeat({ shutDown: true });
        if (response.shouldShutDown || response.errorCode !== errors.NONE.code) return;
        await this.#pause(LEAVE_HEARTBEAT_MS);
      }
      this.#runtime.logger.warn('stopping without the leave of the controller');
    } catch (error) {
      this.#runtime.logger.warn('the controller is gone, stopping without it', {
        error: String(error),
      });
    }
  }

  /** Ends the heartbeats without a word to the controller, as a process does that is killed. */
  close(): void {
    this.#stopped = true;
    this.#timer?.cancel();
  }

  /** Sent when the one before has been answered; reports what holds then. */
  #heartbeat(wish: Wish): Promise<BrokerHeartbeatResponse> {
    const send = (): Promise<BrokerHeartbeatResponse> => {
      const { brokerId, appliedOffset, cordonedLogDirs } = this.#options;
      const cordoned = cordonedLogDirs?.() ?? null;
      return this.#controller.brokerHeartbeat({
        brokerId,
        brokerEpoch: this.#epoch,
        currentMetadataOffset: appliedOffset(),
        wantFence: wish.fence === true,
        wantShutDown: wish.shutDown === true,
        offlineLogDirs: [],
        cordonedLogDirs: cordoned === null ? null : [...cordoned],
      });
    };
    // Whoever sent the one before hears how it ended.
    this.#pending++;
    const answer = this.#last.then(send, send).finally(() => {
      this.#pending--;
    });
    this.#last = answer;
    return answer;
  }

  #schedule(): void {
    this.#timer?.cancel();
    if (this.#stopped) return;
    const intervalMs = this.#options.heartbeatIntervalMs ?? HEARTBEAT_INTERVAL_MS;
    this.#timer = this.#runtime.clock.setTimer(intervalMs, () => {
      // One that still waits for its answer says all that another would.
      if (this.#pending === 0) {
        this.#beat().catch((error: unknown) => {
          this.#runtime.logger.warn('heartbeat failed', { error: String(error) });
        });
      }
      this.#schedule();
    });
  }

  async #beat(): Promise<void> {
    const { errorCode, isFenced } = await this.#heartbeat({});
    if (errorCode === errors.NONE.code && !isFenced) return;
    this.#runtime.logger.warn('the controller holds this broker fenced', {
      error: errorName(errorCode),
    });
    await this.#maybeRegisterAgain(errorCode);
  }

  /** Another registration under this id, or its removal, made the broker epoch unknown. */
  async #maybeRegisterAgain(errorCode: number): Promise<void> {
    const isUnknown =
      errorCode === errors.STALE_BROKER_EPOCH.code ||
      errorCode === errors.BROKER_ID_NOT_REGISTERED.code;
    if (!isUnknown || this.#stopped) return;
    const { brokerId } = this.#options;
    this.#runtime.logger.warn('registering again', { brokerId, error: errorName(errorCode) });
    const refused = await this.#registerOnce();
    if (refused === errors.NONE.code) return;
    this.#runtime.logger.error('not registered again', { reason: this.#refusal(refused) });
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.#runtime.clock.setTimer(ms, resolve);
    });
  }
}

/** What a refused registration means, and what to do, as a sentence. */
function registrationProblem(errorCode: number, options: RegistrationOptions): string {
  const { brokerId, clusterId, features = supportedFeatures } = options;
  switch (errorCode) {
    case errors.DUPLICATE_BROKER_REGISTRATION.code:
      return `node ${brokerId} is another process, which is alive: give this one an id of its own`;
    case errors.UNSUPPORTED_VERSION.code: {
      const ranges = features.map(
        (each) => `${each.name} ${each.minSupportedVersion} to ${each.maxSupportedVersion}`,
      );
      return (
        `a feature of the cluster has a level that is not known here (${ranges.join(', ')}): ` +
        'use a twinlog that supports it'
      );
    }
    case errors.INCONSISTENT_CLUSTER_ID.code:
      return `the data directory is of cluster ${clusterId}, the controllers are of another one`;
    case errors.CLUSTER_AUTHORIZATION_FAILED.code:
      return 'its principal needs CLUSTER_ACTION on the cluster';
    case errors.INVALID_REGISTRATION.code:
      return 'its log directory is that of another broker: is the data directory a copy?';
    default:
      return errorMessage(errorCode);
  }
}
