/**
 * A member of an Apache Kafka cluster without logs: registration, heartbeats and metadata only.
 *
 * Made of the product's own parts on a real network, for tests of joining and leaving. It leads
 * what the controller gives it, without ever serving it.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { silentLogger } from '../../src/base/logger.ts';
import { randomUuid, type Uuid } from '../../src/base/uuid.ts';
import { nodeRuntime } from '../../src/io/node/node-runtime.ts';
import type { Runtime } from '../../src/io/runtime.ts';
import { guestSupportedFeatures } from '../../src/metadata/features.ts';
import type { MetadataImage } from '../../src/metadata/image.ts';
import type { MetadataDelta } from '../../src/metadata/image-delta.ts';
import { MetadataLoader } from '../../src/metadata/metadata-loader.ts';
import { RemoteController } from '../../src/metadata/quorum/remote-controller.ts';
import { apiTable } from '../../src/server/api-table.ts';
import {
  BrokerRegistration,
  DUPLICATE_PATIENCE_MS,
  type RegistrationOptions,
} from '../../src/server/broker-registration.ts';

const WAIT_MS = 20_000;

/** Who joins, and how it differs from the usual. */
export interface MemberOptions {
  readonly bootstrap: string;
  readonly nodeId?: number;
  readonly directoryId?: Uuid;
  readonly registration?: Partial<RegistrationOptions>;
}

/** A new id. */
export function newUuid(): Uuid {
  return randomUuid((length) => nodeRuntime({ logger: silentLogger }).random.bytes(length));
}

/** Waits until a condition holds. */
export async function until(what: string, condition: () => boolean): Promise<void> {
  const deadline = Date.now() + WAIT_MS;
  while (!condition()) {
    if (Date.now() > deadline) throw new Error(`not within ${WAIT_MS} ms: ${what}`);
    await sleep(20);
  }
}

/** See the file header. */
export class Member {
  readonly nodeId: number;
  readonly directoryId: Uuid;
  readonly controller: RemoteController;
  readonly metadata: MetadataLoader;
  readonly registration: BrokerRegistration;
  readonly deltas: MetadataDelta[] = [];
  readonly failures: Error[] = [];
  readonly runtime: Runtime = nodeRuntime({ logger: silentLogger });

  private constructor(options: MemberOptions, clusterId: string) {
    this.nodeId = options.nodeId ?? 900;
    this.directoryId = options.directoryId ?? newUuid();
    this.controller = this.#remoteController(options.bootstrap, clusterId);
    const publish = (delta: MetadataDelta): void => {
      this.deltas.push(delta);
    };
    this.metadata = new MetadataLoader(clusterId, [{ name: 'test', publish }]);
    this.registration = new BrokerRegistration(this.runtime, this.controller, {
      brokerId: this.nodeId,
      clusterId,
      incarnationId: newUuid(),
      directoryId: this.directoryId,
      rack: null,
      // Nobody listens there: a broker only needs an address that others may dial.
      listeners: [{ name: 'PLAINTEXT', host: '127.0.0.1', port: 1 }],
      appliedOffset: () => this.metadata.image.offset,
      features: guestSupportedFeatures,
      duplicatePatienceMs: DUPLICATE_PATIENCE_MS,
      ...options.registration,
    });
  }

  #remoteController(bootstrap: string, clusterId: string): RemoteController {
    return new RemoteController(this.runtime, {
      bootstrapControllers: bootstrap.split(',').map((address) => {
        const [host = '', port = ''] = address.split(':');
        return { host, port: Number(port) };
      }),
      clusterId,
      nodeId: this.nodeId,
      directoryId: this.directoryId,
      refence: () => this.registration.refence(),
      schemasOf: (apiKey) => apiTable.get(apiKey),
      leaderEpochOf: (topicId, partition) =>
        this.image.topicsById.get(topicId)?.partitions.get(partition)?.leaderEpoch,
      onFatal: (error) => this.failures.push(error),
    });
  }

  /** Connects, without registering. */
  static create(options: MemberOptions, clusterId: string): Member {
    return new Member(options, clusterId);
  }

  /** Registers, follows the metadata and waits to be unfenced. */
  async join(): Promise<this> {
    await this.registration.register();
    await this.metadata.start(this.controller);
    await this.registration.unfence();
    return this;
  }

  get image(): MetadataImage {
    return this.metadata.image;
  }

  /** Ends as a killed process does: no word to anyone. */
  kill(): void {
    this.registration.close();
    this.controller.close();
  }
}
