/**
 * The controller port: all that a broker may ask of "a controller".
 *
 * Implemented by `embedded-controller.ts` inside the process and by `quorum/remote-controller.ts`
 * over the network by an Apache Kafka quorum. The broker side never assumes which. Requests and
 * responses are the decoded protocol messages, every field present. Invariants:
 * - A promise resolves only after what it reports is committed (durable) in the metadata log; it
 *   may resolve before or after this broker has applied the records. `waitForOffset` of the loader
 *   closes that gap where an answer must be visible.
 * - Protocol errors are answered in the response; a rejection means that the controller is gone.
 */
import type { Uuid } from '../base/uuid.ts';
import type {
  AlterPartitionRequest,
  AlterPartitionResponse,
} from '../protocol/messages/56-alter-partition.ts';
import type {
  BrokerRegistrationRequest,
  BrokerRegistrationResponse,
} from '../protocol/messages/62-broker-registration.ts';
import type {
  BrokerHeartbeatRequest,
  BrokerHeartbeatResponse,
} from '../protocol/messages/63-broker-heartbeat.ts';
import type { MetadataRecord } from './record-framing.ts';

/** Who asks, for requests that a broker forwards. */
export interface ForwardContext {
  /** As `User:name`. */
  readonly principal: string;
  /** IP address of the client, which a controller elsewhere is told; unknown when absent. */
  readonly clientAddress?: string;
  /** As in the header of the client's request; null when absent. */
  readonly clientId?: string | null;
}

/** A block of producer ids, or why there is none. */
export type ProducerIdBlock =
  | { readonly error: 0; readonly firstProducerId: bigint; readonly length: number }
  | { readonly error: number };

/** The outcome of {@link ControllerPort.electSameLeader}. */
export type ElectionResult =
  | { readonly error: 0; readonly leaderEpoch: number }
  | { readonly error: number; readonly message: string };

/**
 * One committed batch of the metadata log, or several that adjoin in one epoch; `lastOffset` is
 * that of the last record. Control batches come with no records: only offset and epoch move.
 */
export type MetadataBatchListener = (
  records: readonly MetadataRecord[],
  lastOffset: number,
  epoch: number,
) => void;

/**
 * The whole state at `lastOffset`, as records from an empty state on: it replaces whatever was
 * known (rule G1). The batches that follow begin right behind it.
 */
export type MetadataSnapshotListener = MetadataBatchListener;

/** See the file header. */
export interface ControllerPort {
  /** Answers the broker epoch. A new incarnation starts fenced. */
  registerBroker(request: BrokerRegistrationRequest): Promise<BrokerRegistrationResponse>;
  /** Unfences a caught-up broker, fences or shuts down on its wish. */
  brokerHeartbeat(request: BrokerHeartbeatRequest): Promise<BrokerHeartbeatResponse>;
  /** Changes ISRs for the partitions' leader; errors per partition. */
  alterPartition(request: AlterPartitionRequest): Promise<AlterPartitionResponse>;
  /** Reserves a block of producer ids; ids of a lost block are never handed out again. */
  allocateProducerIds(brokerId: number, brokerEpoch: number): Promise<ProducerIdBlock>;
  /**
   * Starts a new leader epoch with the same leader (rule T5); the caller leads the partition.
   * FENCED_LEADER_EPOCH when `leaderEpoch` is no longer current.
   *
   * Apache Kafka's controller has no such call: over it, this broker is fenced and unfenced, which
   * elects it again, in all it leads, and adds two.
   */
  electSameLeader(topicId: Uuid, partition: number, leaderEpoch: number): Promise<ElectionResult>;
  /**
   * An admin request that only a controller may decide (CreateTopics, DeleteTopics,
   * CreatePartitions, IncrementalAlterConfigs, CreateMirror, AddTopicsToMirror,
   * RemoveTopicsFromMirror): decoded request in, decoded response out.
   */
  forward(
    apiKey: number,
    version: number,
    request: unknown,
    context: ForwardContext,
  ): Promise<unknown>;
  /**
   * The same for a request that this broker does not look into: body in, body of the response out,
   * both in `version`. Only a controller elsewhere has it.
   */
  forwardRaw?(
    apiKey: number,
    version: number,
    body: Uint8Array,
    context: ForwardContext,
  ): Promise<Uint8Array>;
  /**
   * Calls `onBatch` for every committed batch from `fromOffset` on, in order, until the controller
   * ends. Resolves when what was committed at the time of the call has been passed on.
   *
   * Where the log no longer reaches back far enough, `onSnapshot` is called instead of the batches
   * that are gone, at any time. The embedded controller keeps its whole log and never calls it.
   */
  subscribe(
    fromOffset: number,
    onBatch: MetadataBatchListener,
    onSnapshot?: MetadataSnapshotListener,
  ): Promise<void>;
}
