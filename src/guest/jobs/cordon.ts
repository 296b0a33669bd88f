/**
 * The cordon around a guest's log directory: the controller places nothing there (G7).
 *
 * From Apache Kafka 4.3 on a broker tells in its heartbeats which of its log directories take no
 * new replicas. A cordoned broker cannot be named in a creation or reassignment either, so what
 * needs that lifts the cordon for as long as it lasts. Where the cluster is older nothing is
 * cordoned, and the sweeper (`strays.ts`) does what is left.
 */
import type { Uuid } from '../../base/uuid.ts';
import type { Runtime } from '../../io/runtime.ts';
import { METADATA_VERSION_FEATURE } from '../../metadata/features.ts';
import type { MetadataImage } from '../../metadata/image.ts';

/** metadata.version of Apache Kafka 4.3, whose records can say that a directory is cordoned. */
export const CORDON_METADATA_VERSION = 30;
/** The version of BrokerHeartbeat that carries cordoned directories. */
export const CORDON_HEARTBEAT_VERSION = 2;
/** How long lifting the cordon may take to show in the metadata, in ms. */
export const CORDON_TIMEOUT_MS = 10_000;
const POLL_MS = 20;

/** What a {@link Cordon} is made of. */
export interface CordonOptions {
  readonly brokerId: number;
  readonly image: () => MetadataImage;
  /** This guest's log directories. */
  readonly logDirs: readonly Uuid[];
  /** Highest BrokerHeartbeat version of the active controller; undefined: not known yet. */
  readonly heartbeatVersion: () => number | undefined;
  /** Sends a heartbeat soon, as what it says has changed. */
  readonly heartbeatNow: () => void;
}

/** See the file header. */
export class Cordon {
  readonly #runtime: Pick<Runtime, 'clock' | 'logger'>;
  readonly #options: CordonOptions;
  /** Actions that need it lifted. */
  #lifted = 0;

  constructor(runtime: Pick<Runtime, 'clock' | 'logger'>, options: CordonOptions) {
    this.#runtime = runtime;
    this.#options = options;
  }

  /** Whether cluster and controller know of cordons. */
  isSupported(): boolean {
    const level = this.#options.image().features.get(METADATA_VERSION_FEATURE) ?? 0;
    const version = this.#options.heartbeatVersion() ?? 0;
    return level >= CORDON_METADATA_VERSION && version >= CORDON_HEARTBEAT_VERSION;
  }

  /** What the next heartbeat says. */
  cordonedLogDirs(): readonly Uuid[] {
    return this.#lifted > 0 || !this.isSupported() ? [] : this.#options.logDirs;
  }

  /**
   * Runs `action` while nothing is cordoned. When the metadata does not show that in time, `action`
   * runs all the same: the controller then refuses what it must.
   */
  async whileLifted<T>(action: () => Promise<T>): Promise<T> {
    this.#lifted++;
    try {
      if (this.#isCordoned()) this.#options.heartbeatNow();
      await this.#untilLifted();
      return await action();
    } finally {
      this.#lifted--;
      if (this.#lifted === 0 && this.isSupported()) this.#options.heartbeatNow();
    }
  }

  #isCordoned(): boolean {
    const { brokerId, image } = this.#options;
    return (image().brokers.get(brokerId)?.cordonedLogDirs.length ?? 0) > 0;
  }

  async #untilLifted(): Promise<void> {
    const { clock, logger } = this.#runtime;
    const deadlineMs = clock.monotonicMs() + CORDON_TIMEOUT_MS;
    while (this.#isCordoned()) {
      if (clock.monotonicMs() >= deadlineMs) {
        logger.warn('the cordon of the log directory is not lifted yet');
        return;
      }
      await new Promise<void>((resolve) => {
        clock.setTimer(POLL_MS, resolve);
      });
    }
  }
}
