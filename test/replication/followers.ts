/**
 * Two brokers of one cluster without a network: each follows the other through calls, as the
 * protocol would carry them, bytes copied.
 */
import type { TestContext } from 'node:test';
import { type Uuid, ZERO_UUID } from '../../src/base/uuid.ts';
import { ConnectionError } from '../../src/protocol/kafka-connection.ts';
import type { FetchResult } from '../../src/replication/fetch-types.ts';
import type { FollowFrom } from '../../src/replication/follower-begin.ts';
import type { FollowedLeader } from '../../src/replication/follower-endpoint.ts';
import type {
  EndpointEpochEnd,
  EndpointOffset,
  EpochQuestion,
  FetchChanges,
  FetchedPartition,
  FetchOutcome,
  FetchTarget,
  OffsetQuestion,
} from '../../src/replication/leader-endpoint.ts';
import { settle } from './fakes.ts';
import {
  fetchParams,
  OTHER_BROKER,
  type PartitionChange,
  startTestBroker,
  type TestBroker,
  THIS_BROKER,
} from './harness.ts';

export const TOPIC = 'a';

/** How one broker reaches another. */
export class CalledLeader implements FollowedLeader {
  readonly description = 'called';
  readonly #leader: () => TestBroker;
  readonly #replicaId: number;
  readonly #targets = new Map<string, FetchTarget>();
  /** Fetch offsets asked for, and answers that are no plain data. */
  readonly seen: string[] = [];
  /** Set: nothing is answered. */
  isAway = false;
  isClosed = false;

  constructor(leader: () => TestBroker, replicaId: number) {
    this.#leader = leader;
    this.#replicaId = replicaId;
  }

  async fetch(
    changes: FetchChanges,
    onPartition: (target: FetchTarget, fetched: FetchedPartition) => void,
  ): Promise<FetchOutcome> {
    const key = ({ topicId, partition }: FetchTarget): string => `${topicId}:${partition}`;
    for (const target of changes.removed) this.#targets.delete(key(target));
    for (const target of changes.updated) this.#targets.set(key(target), target);
    const targets = [...this.#targets.values()];
    for (const target of targets) this.seen.push(`${target.fetchOffset}`);
    if (this.isAway) return { kind: 'failed', cause: 'ECONNREFUSED', message: 'away' };
    const { replicas } = this.#leader();
    const replicaId = this.#replicaId;
    const params = fetchParams({ replicaId, replicaEpoch: 100 + replicaId });
    const results = await replicas.fetch(params, targets);
    if (this.isClosed) return { kind: 'failed', cause: 'closed', message: 'closed' };
    for (const [index, result] of results.entries()) {
      const target = targets[index] as FetchTarget;
      if (result.error !== 0) this.seen.push(`error ${result.error}`);
      if (result.divergingEpoch !== undefined) {
        const { epoch, endOffset } = result.divergingEpoch;
        this.seen.push(`diverging ${epoch}@${endOffset}`);
      }
      onPartition(target, fetchedOf(result));
    }
    return { kind: 'ok' };
  }

  async listOffsets(questions: readonly OffsetQuestion[]): Promise<EndpointOffset[]> {
    this.#answers();
    const params = { replicaId: this.#replicaId, readCommitted: false };
    const named = questions.map((question) => ({ ...question, topicId: ZERO_UUID }));
    return this.#leader()
      .replicas.listOffsets(params, named)
      .map(({ error, ...answer }) => ({ errorCode: error, ...answer }));
  }

  async offsetsForLeaderEpoch(questions: readonly EpochQuestion[]): Promise<EndpointEpochEnd[]> {
    this.#answers();
    const named = questions.map((question) => ({ ...question, topicId: ZERO_UUID }));
    return this.#leader()
      .replicas.offsetsForLeaderEpoch(named)
      .map(({ error, ...answer }) => ({ errorCode: error, ...answer }));
  }

  async openTransactions(topic: string, partition: number) {
    this.#answers();
    const producers = this.#leader().partition(topic, partition).log.activeProducers();
    return producers.filter(({ currentTxnFirstOffset }) => currentTxnFirstOffset >= 0);
  }

  #answers(): void {
    if (this.isAway) throw new ConnectionError('ECONNREFUSED', 'away');
  }

  close(): void {
    this.isClosed = true;
  }
}

function fetchedOf(result: FetchResult): FetchedPartition {
  const { highWatermark, lastStableOffset, logStartOffset, divergingEpoch, currentLeader } = result;
  const bounds = { highWatermark, lastStableOffset, logStartOffset };
  const records = new Uint8Array(Buffer.concat(result.records));
  return { errorCode: result.error, ...bounds, divergingEpoch, currentLeader, records };
}

/** Broker 1, which leads at first, and broker 2. */
export interface Pair {
  readonly first: TestBroker;
  readonly second: TestBroker;
  /** Where each begins; read at each review. */
  readonly from: Map<number, FollowFrom>;
  /** Connections made so far, by who follows. */
  readonly calls: Map<number, CalledLeader[]>;
  /** Creates a topic that the first broker leads, at both. */
  createTopic(change?: PartitionChange): Uuid;
  /** The same change of metadata at both, the one that loses leadership first. */
  change(change: PartitionChange): void;
  /** Lets everything run until nothing more happens; long polls end. */
  run(): Promise<void>;
}

/** Starts two brokers that follow each other as `from` says. */
export async function startPair(t: TestContext): Promise<Pair> {
  const from = new Map<number, FollowFrom>();
  const calls = new Map<number, CalledLeader[]>();
  const brokers = new Map<number, TestBroker>();
  const start = async (brokerId: number): Promise<TestBroker> => {
    const made: CalledLeader[] = [];
    calls.set(brokerId, made);
    const broker = await startTestBroker(t, brokerId, {
      followFrom: () => from.get(brokerId),
      listenerName: 'PLAINTEXT',
      connect: (leaderId) => {
        const leader = new CalledLeader(() => brokers.get(leaderId) as TestBroker, brokerId);
        made.push(leader);
        return leader;
      },
    });
    brokers.set(brokerId, broker);
    return broker;
  };
  const [first, second] = [await start(THIS_BROKER), await start(OTHER_BROKER)];
  return {
    first,
    second,
    from,
    calls,
    createTopic(change = {}) {
      const replicas = [THIS_BROKER, OTHER_BROKER];
      const all = { replicas, isr: [THIS_BROKER], leader: THIS_BROKER, ...change };
      const id = first.createTopic(TOPIC, 1, all);
      second.createTopic(TOPIC, 1, all, id);
      return id;
    },
    change(change) {
      const order = change.leader === THIS_BROKER ? [second, first] : [first, second];
      for (const broker of order) broker.changePartition(TOPIC, 0, change);
    },
    async run() {
      for (let turn = 0; turn < 20; turn++) {
        await settle();
        await Promise.all([first.clock.advance(100), second.clock.advance(100)]);
      }
    },
  };
}
