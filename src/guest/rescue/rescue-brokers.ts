/**
 * What a rescue asks of the Apache brokers of a cluster, over the network (G18a).
 *
 * Used by the command; `rescue.ts` has the port.
 */
import type { Runtime } from '../../io/runtime.ts';
import type { MetadataImage } from '../../metadata/image.ts';
import type { ConnectionSecurity } from '../../protocol/connection-security.ts';
import {
  OffsetForLeaderEpochRequest,
  OffsetForLeaderEpochResponse,
} from '../../protocol/messages/23-offset-for-leader-epoch.ts';
import { ClusterClient } from '../cluster-client.ts';
import { brokerAddresses } from '../cluster-look.ts';
import { ClusterGroupOffsetSink, SINK_REQUEST_TIMEOUT_MS } from '../group-offset-sink.ts';
import { apacheBrokers, isLive } from '../guest-brokers.ts';
import type { PartitionName } from '../jobs/job-ports.ts';
import type { RescueBrokers } from './rescue.ts';
import { type LoweredGroups, lowerGroups, type RescuedLog } from './rescue-groups.ts';
import { type AskedPartition, type ReplicaAnswer, readReplicaLogs } from './rescue-logs.ts';
import {
  abortOpenTransactions,
  type ClosedTransaction,
  findOpenAt,
  findOpenTransactions,
  type OpenProducer,
} from './rescue-transactions.ts';

/** Who asks is no replica. */
const NO_REPLICA = -1;
/** How long leaders are asked again, in ms. */
const LEADER_BOUND_MS = 30_000;

/** See the file header. */
export class ApacheRescueBrokers implements RescueBrokers {
  readonly #runtime: Runtime;
  readonly #client: ClusterClient;
  /** Sends everything once, as the sink wants it. */
  readonly #groupClient: ClusterClient;
  readonly #groups: ClusterGroupOffsetSink;

  /** `image` is asked for at each need. */
  constructor(
    runtime: Runtime,
    image: () => MetadataImage,
    security: ConnectionSecurity | undefined,
  ) {
    this.#runtime = runtime;
    const options = { security, bootstrap: () => brokerAddresses(image(), security) };
    this.#client = new ClusterClient(runtime, { ...options, clientId: 'twinlog-rescue' });
    this.#groupClient = new ClusterClient(runtime, {
      ...options,
      clientId: 'twinlog-rescue-groups',
      requestTimeoutMs: SINK_REQUEST_TIMEOUT_MS,
      retryBoundMs: 0,
    });
    const live = () =>
      apacheBrokers(image()).flatMap(({ id }) => (isLive(image(), id) ? [id] : []));
    this.#groups = new ClusterGroupOffsetSink(runtime, {
      cluster: this.#groupClient,
      brokerIds: live,
    });
  }

  close(): void {
    this.#client.close();
    this.#groupClient.close();
  }

  logs(id: number, asked: readonly AskedPartition[]): Promise<Map<string, ReplicaAnswer>> {
    return readReplicaLogs(this.#client, id, asked);
  }

  openAt(
    id: number,
    partitions: readonly PartitionName[],
  ): Promise<ReadonlyMap<string, readonly OpenProducer[]>> {
    return findOpenAt(this.#client, id, partitions);
  }

  open(
    partitions: readonly PartitionName[],
  ): Promise<ReadonlyMap<string, readonly OpenProducer[]>> {
    return findOpenTransactions(this.#client, partitions);
  }

  abort(
    partitions: readonly PartitionName[],
  ): Promise<ReadonlyMap<string, readonly ClosedTransaction[]>> {
    return abortOpenTransactions(this.#client, partitions);
  }

  lowerGroups(logs: readonly RescuedLog[]): Promise<ReadonlyMap<string, LoweredGroups>> {
    return lowerGroups(this.#runtime, this.#groups, logs);
  }

  epochEnds(
    topic: string,
    epochs: ReadonlyMap<number, number>,
  ): Promise<ReadonlyMap<number, number>> {
    const client = this.#client;
    return client.atLeaders(topic, epochs.keys(), LEADER_BOUND_MS, async (id, partitions) => {
      const asked = partitions.map((partition) => ({
        partition,
        leaderEpoch: epochs.get(partition) ?? -1,
      }));
      const { topics } = await client.call(
        { to: 'broker', id },
        OffsetForLeaderEpochRequest,
        OffsetForLeaderEpochResponse,
        { replicaId: NO_REPLICA, topics: [{ topic, partitions: asked }] },
      );
      const answers = topics.flatMap((each) => each.partitions);
      return new Map(
        answers.map(({ partition, errorCode, endOffset }) => [
          partition,
          { errorCode, value: endOffset },
        ]),
      );
    });
  }
}
