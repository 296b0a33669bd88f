/**
 * This broker's place in its cluster: registers, sends heartbeats, and leaves in good order.
 *
 * The controller is reached through its port only, wherever it lives. Invariants: heartbeats report
 * the metadata offset that was really applied; a heartbeat that fails is tried again at the next
 * turn; a broker epoch is used only after the controller gave it.
 */
import type { Uuid } from '../base/uuid.ts';
import type { Runtime, Timer } from '../io/runtime.ts';
import type { ControllerPort } from '../metadata/controller-port.ts';
import { supportedFeatures } from '../metadata/features.ts';
import { errorName, errors } from '../protocol/errors.ts';
import type { BrokerHeartbeatResponse } from '../protocol/messages/63-broker-heartbeat.ts';
import type { ListenerAddress } from './broker-config.ts';

/** Default of broker.heartbeat.interval.ms. */
export const HEARTBEAT_INTERVAL_MS = 2_000;
/** Pause between heartbeats while the broker waits to be unfenced or to be let go. */
const FAST_HEARTBEAT_MS = 50;
/** Heartbeats that a stopping broker waits for the controller to let it go. */
const MAX_SHUTDOWN_HEARTBEATS = 100;
const SECURITY_PLAINTEXT = 0;

/** Who registers. */
export interface RegistrationOptions {
  readonly brokerId: number;
  readonly clusterId: string;
  readonly incarnationId: Uuid;
  readonly directoryId: Uuid;
  readonly rack: string | null;
  readonly listeners: readonly ListenerAddress[];
  /** Last metadata offset applied. */
  readonly appliedOffset: () => number;
}

/** See the file header. */
export class BrokerRegistration {
  readonly #runtime: Runtime;
  readonly #controller: ControllerPort;
  readonly #options: RegistrationOptions;
  #epoch = -1;
  #timer: Timer | undefined;
  #stopped = false;

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
    const options = this.#options;
    const response = await this.#controller.registerBroker({
      brokerId: options.brokerId,
      clusterId: options.clusterId,
      incarnationId: options.incarnationId,
      listeners: options.listeners.map(({ name, host, port }) => ({
        name,
        host,
        port,
        securityProtocol: SECURITY_PLAINTEXT,
      })),
      features: supportedFeatures.map((feature) => ({ ...feature })),
      rack: options.rack,
      isMigratingZkBroker: false,
      logDirs: [options.directoryId],
      previousBrokerEpoch: -1,
    });
    if (response.errorCode !== errors.NONE.code) {
      throw new Error(
        `the controller refuses broker ${options.brokerId}: ${errorName(response.errorCode)}`,
      );
    }
    this.#epoch = response.brokerEpoch;
  }

  /** Sends heartbeats until the controller unfences the broker, then goes on in the background. */
  async unfence(): Promise<void> {
    for (;;) {
      const response = await this.#heartbeat(false);
      if (response.errorCode === errors.NONE.code && !response.isFenced) break;
      await this.#pause(FAST_HEARTBEAT_MS);
    }
    this.#schedule();
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
        const response = await this.#heartbeat(true);
        if (response.shouldShutDown || response.errorCode !== errors.NONE.code) return;
        await this.#pause(FAST_HEARTBEAT_MS);
      }
      this.#runtime.logger.warn('stopping without the leave of the controller');
    } catch (error) {
      this.#runtime.logger.warn('the controller is gone, stopping without it', {
        error: String(error),
      });
    }
  }

  #heartbeat(wantShutDown: boolean): Promise<BrokerHeartbeatResponse> {
    return this.#controller.brokerHeartbeat({
      brokerId: this.#options.brokerId,
      brokerEpoch: this.#epoch,
      currentMetadataOffset: this.#options.appliedOffset(),
      wantFence: false,
      wantShutDown,
      offlineLogDirs: [],
    });
  }

  #schedule(): void {
    this.#timer = this.#runtime.clock.setTimer(HEARTBEAT_INTERVAL_MS, () => {
      this.#heartbeat(false).then(
        (response) => this.#heard(response),
        (error: unknown) => {
          this.#runtime.logger.warn('heartbeat failed', { error: String(error) });
        },
      );
      this.#schedule();
    });
    if (this.#stopped) this.#timer.cancel();
  }

  #heard({ errorCode, isFenced }: BrokerHeartbeatResponse): void {
    if (errorCode === errors.NONE.code && !isFenced) return;
    this.#runtime.logger.warn('the controller holds this broker fenced', {
      error: errorName(errorCode),
    });
  }

  #pause(ms: number): Promise<void> {
    return new Promise((resolve) => {
      this.#runtime.clock.setTimer(ms, resolve);
    });
  }
}
