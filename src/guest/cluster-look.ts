/**
 * A cluster seen from outside by a command: its metadata, its mirror state, and its controller to
 * send requests to.
 *
 * Used by the `twinlog guest …` commands that are no guest themselves. It reads the metadata as a
 * client does, under no node id, so that the quorum has no observer more for it. Invariant: what is
 * shown is as the cluster has committed it; nothing is written but what a command sends.
 */
import { ZERO_UUID } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import type { MetadataImage } from '../metadata/image.ts';
import { MetadataLoader } from '../metadata/metadata-loader.ts';
import type { HostPort } from '../metadata/quorum/probe.ts';
import { RemoteController } from '../metadata/quorum/remote-controller.ts';
import { MIRROR_STATE_TOPIC } from '../mirror/state-row.ts';
import type { BrokerAddress } from '../protocol/connection-pool.ts';
import { type ConnectionSecurity, protocolCode } from '../protocol/connection-security.ts';
import { apacheBrokers, guests } from './guest-brokers.ts';
import { GuestStateStore } from './state/state-store.ts';

/** Who asks for metadata without being a broker. */
const NOBODY = -1;
/** Time between two looks while something is waited for, in ms. */
export const LOOK_INTERVAL_MS = 200;

/** How to reach the cluster. */
export interface ClusterLookOptions {
  readonly bootstrapControllers: readonly HostPort[];
  /** How connections are secured, to controllers and brokers alike. */
  readonly security?: ConnectionSecurity | undefined;
  /** The metadata can no longer be followed. */
  readonly onFatal: (error: Error) => void;
  /**
   * A guest that is gone for good, in whose place rows are written (rescue); undefined: rows are
   * only read.
   */
  readonly inPlaceOf?: number;
}

/** The brokers of the cluster's own, where they speak the protocol of `security`. */
export function brokerAddresses(
  image: MetadataImage,
  security: ConnectionSecurity | undefined,
): BrokerAddress[] {
  const spoken = protocolCode(security);
  return apacheBrokers(image).flatMap(({ listeners }) => {
    const listener = listeners.find(({ securityProtocol }) => securityProtocol === spoken);
    return listener === undefined ? [] : [{ host: listener.host, port: listener.port }];
  });
}

/** See the file header. */
export class ClusterLook {
  readonly controller: RemoteController;
  readonly store: GuestStateStore;
  readonly #clock: Runtime['clock'];
  readonly #loader: MetadataLoader;

  private constructor(
    runtime: Runtime,
    controller: RemoteController,
    loader: MetadataLoader,
    { inPlaceOf, security }: ClusterLookOptions,
  ) {
    this.#clock = runtime.clock;
    this.controller = controller;
    this.#loader = loader;
    this.store = new GuestStateStore(runtime, {
      nodeId: inPlaceOf ?? NOBODY,
      brokers: () => brokerAddresses(this.image, security),
      security,
      otherGuests: () => guests(this.image).flatMap(({ id }) => (id === inPlaceOf ? [] : [id])),
      image: () => this.image,
      mayOwn: () => Promise.resolve(inPlaceOf !== undefined),
      onOverlay: (records) => loader.overlay(records),
      onChange: () => {},
    });
  }

  /** Reads the metadata and goes on following it; rejects when no controller answers. */
  static async open(runtime: Runtime, options: ClusterLookOptions): Promise<ClusterLook> {
    const { bootstrapControllers, security, onFatal } = options;
    const controller = new RemoteController(runtime, {
      bootstrapControllers,
      security,
      clusterId: undefined,
      nodeId: NOBODY,
      directoryId: ZERO_UUID,
      refence: () => Promise.resolve(),
      schemasOf: () => undefined,
      onFatal,
    });
    try {
      const loader = new MetadataLoader(await controller.clusterId(), []);
      await loader.start(controller);
      return new ClusterLook(runtime, controller, loader, options);
    } catch (error) {
      controller.close();
      throw error;
    }
  }

  /** As of now, with the memberships of mirror topics once the rows are read. */
  get image(): MetadataImage {
    return this.#loader.image;
  }

  /** Reads the mirror state; false: the cluster has none. Rejects with a `ClusterError`. */
  async readRows(): Promise<boolean> {
    if (!this.image.topicsByName.has(MIRROR_STATE_TOPIC)) return false;
    await this.store.start();
    return true;
  }

  /** Resolves after `ms`. */
  pause(ms = LOOK_INTERVAL_MS): Promise<void> {
    return new Promise((resolve) => {
      this.#clock.setTimer(ms, resolve);
    });
  }

  close(): void {
    this.store.close();
    this.controller.close();
  }
}
