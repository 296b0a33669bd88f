/**
 * What a rescue asks of the Apache brokers of a cluster, over the network (G18a).
 *
 * Used by the command; `rescue.ts` has the port.
 */
import type { Runtime } from '../../io/runtime.ts';
import type { BrokerAddress } from '../../protocol/connection-pool.ts';
import type { ConnectionSecurity } from '../../protocol/connection-security.ts';
import {
  OffsetForLeaderEpochRequest,
  OffsetForLeaderEpochResponse,
} from '../../protocol/messages/23-offset-for-leader-epoch.ts';
import { ClusterClient } from '../cluster-client.ts';
import type { PartitionName } from '../jobs/job-ports.ts';
import type { RescueBrokers } from './rescue.ts';
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
  readonly #client: ClusterClient;

  /** `addresses` are asked for at each need. */
  constructor(
    runtime: Runtime,
    addresses: () => readonly BrokerAddress[],
    security: ConnectionSecurity | undefined,
  ) {
    const clientId = 'twinlog-rescue';
    this.#client = new ClusterClient(runtime, { clientId, security, bootstrap: addresses });
  }

  close(): void {
    this.#client.close();
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
