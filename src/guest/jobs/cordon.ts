/**
 * The cordon around a guest's log directory: the controller places nothing there (G7).
 *
 * From Apache Kafka 4.3 on a broker tells in its heartbeats which of its log directories take no
 * new replicas. A cordoned broker cannot be named in a creation or reassignment either, so what
 * needs that lifts the cordons of all guests, which are named together, for as long as it lasts:
 * the others see a flag of this guest in the metadata. Maintenance lifts them, too, as then an
 * administrator may move mirror topics. Where the cluster is older nothing is cordoned; the sweeper
 * (`strays.ts`) does what is left.
 */
import type { Uuid } from '../../base/uuid.ts';
import type { Runtime } from '../../io/runtime.ts';
import { METADATA_VERSION_FEATURE } from '../../metadata/features.ts';
import type { MetadataImage } from '../../metadata/image.ts';
import { isPassing } from '../../metadata/quorum/quorum-client.ts';
import {
  GUEST_MAINTENANCE_CONFIG,
  GUEST_UNCORDON_CONFIG,
  guestFlag,
  isCordoned,
  otherLiveGuests,
} from '../guest-brokers.ts';
import { setGuestFlag } from '../guest-flags.ts';
import type { JobController } from './job-ports.ts';

/** metadata.version of Apache Kafka 4.3, whose records can say that a directory is cordoned. */
export const CORDON_METADATA_VERSION = 30;
/** The version of BrokerHeartbeat that carries cordoned directories. */
export const CORDON_HEARTBEAT_VERSION = 2;
/** How long lifting the cordons may take to show in the metadata, in ms. */
export const CORDON_TIMEOUT_MS = 10_000;
const POLL_MS = 20;

/** What a {@link Cordon} is made of. */
export interface CordonOptions {
  readonly brokerId: number;
  readonly controller: JobController;
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
  /** The end of the last turn of {@link #tell}. */
  #turn: Promise<unknown> = Promise.resolve();

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
    return this.#isLifted() || !this.isSupported() ? [] : this.#options.logDirs;
  }

  /**
   * Runs `action` while no guest is cordoned. When the metadata does not show that in time,
   * `action` runs all the same: the controller then refuses what it must.
   */
  async whileLifted<T>(action: () => Promise<T>): Promise<T> {
    this.#lifted++;
    try {
      await this.#askOthers();
      if (this.#isCordoned(this.#options.brokerId)) this.#options.heartbeatNow();
      await this.#untilLifted();
      return await action();
    } finally {
      this.#lifted--;
      // The next pass tells the others.
      if (this.#lifted === 0 && this.isSupported()) this.#options.heartbeatNow();
    }
  }

  /** Follows what others ask for; takes back what this guest asked for, before a crash, too. */
  async pass(): Promise<void> {
    if (!this.isSupported()) return;
    const isShown = this.#isCordoned(this.#options.brokerId);
    if (isShown !== this.cordonedLogDirs().length > 0) this.#options.heartbeatNow();
    await this.#tell();
  }

  #isLifted(): boolean {
    const { brokerId, image } = this.#options;
    const now = image();
    const others = otherLiveGuests(now, brokerId);
    return (
      this.#lifted > 0 ||
      [brokerId, ...others].some((id) => guestFlag(now, id, GUEST_MAINTENANCE_CONFIG)) ||
      others.some((id) => guestFlag(now, id, GUEST_UNCORDON_CONFIG))
    );
  }

  #isCordoned(id: number): boolean {
    return isCordoned(this.#options.image(), id);
  }

  async #askOthers(): Promise<void> {
    try {
      await this.#tell();
    } catch (error) {
      if (!isPassing(error)) throw error;
      this.#runtime.logger.warn('no other guest could be asked to lift its cordon', {
        error: error.message,
      });
    }
  }

  /** Makes this guest's flag say what is wanted; one at a time, so that the last one stands. */
  #tell(): Promise<void> {
    const turn = this.#turn.then(() => this.#tellNow());
    // Its failure is told to who asked for the turn; the next one is taken all the same.
    this.#turn = turn.catch(() => undefined);
    return turn;
  }

  async #tellNow(): Promise<void> {
    const { brokerId, controller, image } = this.#options;
    const isSaid = (): boolean => guestFlag(image(), brokerId, GUEST_UNCORDON_CONFIG);
    const isNeeded = this.#lifted > 0 && this.isSupported();
    const wanted = isNeeded && otherLiveGuests(image(), brokerId).length > 0;
    if (isSaid() === wanted) return;
    const problem = await setGuestFlag(controller, [brokerId], GUEST_UNCORDON_CONFIG, wanted);
    if (problem !== undefined) this.#runtime.logger.warn('cordons', { problem });
    else await this.#until(() => isSaid() === wanted);
  }

  async #untilLifted(): Promise<void> {
    const { brokerId, image } = this.#options;
    const cordoned = (): number[] =>
      [brokerId, ...otherLiveGuests(image(), brokerId)].filter((id) => this.#isCordoned(id));
    if (await this.#until(() => cordoned().length === 0)) return;
    this.#runtime.logger.warn('cordons are not lifted yet', { guests: cordoned() });
  }

  /** Waits until the metadata is so; false: it is not in time. */
  async #until(isSo: () => boolean): Promise<boolean> {
    const { clock } = this.#runtime;
    const deadlineMs = clock.monotonicMs() + CORDON_TIMEOUT_MS;
    while (!isSo()) {
      if (clock.monotonicMs() >= deadlineMs) return false;
      await new Promise<void>((resolve) => {
        clock.setTimer(POLL_MS, resolve);
      });
    }
    return true;
  }
}
