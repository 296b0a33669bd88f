/**
 * The mirror state of another cluster, read from its `__mirror_state` as any consumer can (G22).
 *
 * A failback has to know where the other side stopped mirroring from here, also while the other
 * side's guests are down. Used by drivers whose source is an Apache Kafka cluster. Invariants:
 * - Everything that was replicated there when the reading began is in the answer: an undecided
 *   transaction is waited for, and an error if it stays undecided.
 * - "No such topic" is an answer (`absent`), "not allowed", "not reachable" and "not readable" are
 *   errors: nobody begins anew because a row could not be read.
 */
import { SharedRun } from '../../base/shared-run.ts';
import { type Uuid, ZERO_UUID } from '../../base/uuid.ts';
import type { Runtime } from '../../io/runtime.ts';
import { type MirrorCause, MirrorFailure } from '../../mirror/causes.ts';
import type { KeyedRow } from '../../mirror/coordinator-shard.ts';
import type { MirrorSettings } from '../../mirror/settings.ts';
import {
  type ClosedTransaction,
  MIRROR_STATE_TOPIC,
  type MirrorStateRow,
} from '../../mirror/state-row.ts';
import { MirrorState } from '../../mirror/states.ts';
import { errors } from '../../protocol/errors.ts';
import { ClusterClient, ClusterError } from '../cluster-client.ts';
import { CommittedReader } from './committed-reader.ts';
import { StateRows } from './state-rows.ts';
import { writerOf } from './state-topic.ts';

/**
 * How long a cluster must say that it has no such topic until that is believed, in ms: a few times,
 * not longer, since every mirror of a cluster that never had guests waits for it.
 */
export const ABSENT_BOUND_MS = 200;
/** How long a topic is looked up, in ms. */
const LOOK_UP_BOUND_MS = 2_000;
/** How long the whole reading may take, in ms: an open transaction must time out meanwhile. */
export const PEER_READ_BOUND_MS = 30_000;

type RuntimeParts = Pick<
  Runtime,
  'clock' | 'network' | 'crypto' | 'random' | 'compression' | 'logger'
>;

/** How to reach the peer. */
export type PeerSettings = Pick<
  MirrorSettings,
  'bootstrapServers' | 'requestTimeoutMs' | 'connectionSetupTimeoutMs' | 'security'
>;

/** What the peer's topic says; `absent`: it has none. */
export type PeerRows =
  | 'absent'
  | { readonly clusterId: string; readonly rows: readonly KeyedRow[] };

function causeOfRefusal(errorCode: number): MirrorCause {
  switch (errorCode) {
    case errors.TOPIC_AUTHORIZATION_FAILED.code:
    case errors.CLUSTER_AUTHORIZATION_FAILED.code:
      return 'SOURCE_AUTHORIZATION_FAILED';
    case errors.SASL_AUTHENTICATION_FAILED.code:
      return 'SOURCE_AUTHENTICATION_FAILED';
    case errors.UNKNOWN_TOPIC_OR_PARTITION.code:
    case errors.UNKNOWN_TOPIC_ID.code:
      return 'SOURCE_TOPIC_MISSING';
    default:
      return 'SOURCE_ERROR';
  }
}

/** What a failure of the peer's cluster means for a mirror. */
function peerFailure(error: unknown): unknown {
  if (!(error instanceof ClusterError)) return error;
  const { kind, errorCode, message } = error;
  switch (kind) {
    case 'unreachable':
    case 'closed':
      return new MirrorFailure('SOURCE_UNREACHABLE', message);
    case 'timedOut':
      return new MirrorFailure('SOURCE_TIMED_OUT', message);
    case 'refused':
      return new MirrorFailure(causeOfRefusal(errorCode), message);
    default:
      return new MirrorFailure('SOURCE_ERROR', message);
  }
}

function peerClient(runtime: RuntimeParts, settings: PeerSettings, clientId: string) {
  return new ClusterClient(runtime, {
    clientId,
    bootstrap: () => settings.bootstrapServers,
    security: settings.security,
    requestTimeoutMs: settings.requestTimeoutMs,
    connectTimeoutMs: settings.connectionSetupTimeoutMs,
  });
}

async function hasStateTopic(client: ClusterClient): Promise<boolean> {
  try {
    await client.topic(MIRROR_STATE_TOPIC, ABSENT_BOUND_MS);
    return true;
  } catch (error) {
    const isUnknown =
      error instanceof ClusterError && error.errorCode === errors.UNKNOWN_TOPIC_OR_PARTITION.code;
    if (isUnknown) return false;
    throw error;
  }
}

async function readAll(runtime: RuntimeParts, clients: readonly [ClusterClient, ClusterClient]) {
  const [client, fetchClient] = clients;
  const rows = new StateRows();
  const reader = new CommittedReader(runtime, {
    topic: MIRROR_STATE_TOPIC,
    client,
    fetchClient,
    onRecord: (at, record) => {
      const { key, value } = record;
      if (key !== null) rows.apply({ at, key, value, writer: writerOf(record) });
    },
    onReset: (partition) => rows.forgetPlaces(partition),
    endsWhenRefused: true,
  });
  try {
    await reader.start(PEER_READ_BOUND_MS);
    await reader.readTo('highWatermark', PEER_READ_BOUND_MS);
    return rows.shard.rows();
  } finally {
    reader.close();
  }
}

/**
 * The rows of another cluster's `__mirror_state` that `filter` lets pass, as of now. Rejects with a
 * {@link MirrorFailure}.
 */
export async function readPeerRows(
  runtime: RuntimeParts,
  settings: PeerSettings,
  filter: (keyed: KeyedRow) => boolean = () => true,
): Promise<PeerRows> {
  const client = peerClient(runtime, settings, 'twinlog-peer-rows');
  const fetchClient = peerClient(runtime, settings, 'twinlog-peer-rows-reader');
  try {
    if (!(await hasStateTopic(client))) return 'absent';
    const rows = await readAll(runtime, [client, fetchClient]);
    return { clusterId: client.clusterId, rows: rows.filter(filter) };
  } catch (error) {
    throw peerFailure(error);
  } finally {
    client.close();
    fetchClient.close();
  }
}

/** Nothing is cut any more: the offset is final. */
function hasEnded({ state, settled }: MirrorStateRow): boolean {
  return state === MirrorState.STOPPED || (state === MirrorState.STOPPING && settled);
}

/** A topic of the peer; a zero id: any of that name. */
interface PeerTopic {
  readonly name: string;
  readonly id: Uuid;
}

/** The row of the last time that the peer mirrored a partition from the cluster `ownClusterId`. */
function endedRowIn(
  rows: readonly KeyedRow[],
  topic: PeerTopic,
  partition: number,
  ownClusterId: string,
): MirrorStateRow | undefined {
  const ended = rows.filter(
    ({ key, row }) =>
      row.topicName === topic.name &&
      (topic.id === ZERO_UUID || key.topicId === topic.id) &&
      key.partition === partition &&
      row.sourceClusterId === ownClusterId &&
      row.lastMirroredOffset >= 0 &&
      hasEnded(row),
  );
  ended.sort(
    ({ row: a }, { row: b }) =>
      b.membershipOffset - a.membershipOffset || b.stateEpoch - a.stateEpoch,
  );
  return ended[0]?.row;
}

/**
 * Where the peer ended mirroring a topic, that has this id there, from the cluster `ownClusterId`;
 * `none`: it never did.
 */
export function lastMirroredOffsetIn(
  rows: readonly KeyedRow[],
  topic: PeerTopic,
  partition: number,
  ownClusterId: string,
): number | 'none' {
  return endedRowIn(rows, topic, partition, ownClusterId)?.lastMirroredOffset ?? 'none';
}

/** A peer that many partitions ask at the same time: they share one reading. */
export class PeerMirrorState {
  readonly #runtime: RuntimeParts;
  readonly #settings: PeerSettings;
  readonly #ownClusterId: string;
  readonly #reading: SharedRun<PeerRows>;
  readonly #topicIds = new Map<string, SharedRun<Uuid>>();

  constructor(runtime: RuntimeParts, settings: PeerSettings, ownClusterId: string) {
    this.#runtime = runtime;
    this.#settings = settings;
    this.#ownClusterId = ownClusterId;
    this.#reading = new SharedRun(() => readPeerRows(runtime, settings));
  }

  /**
   * Where the peer ended mirroring from here (rule T2, G22), or `none`; rejects with a
   * {@link MirrorFailure}. The topic's id there (looked up if it is not given, zero if it has none)
   * tells it from one that had its name before.
   */
  async lastMirroredOffset(
    topicName: string,
    partition: number,
    peerTopicId?: Uuid,
  ): Promise<number | 'none'> {
    const row = await this.#endedRow(topicName, partition, peerTopicId);
    return row?.lastMirroredOffset ?? 'none';
  }

  /**
   * The transactions that the peer ended where it ended mirroring (G24a); otherwise as
   * `lastMirroredOffset`.
   */
  async closedTransactions(
    topicName: string,
    partition: number,
    peerTopicId?: Uuid,
  ): Promise<readonly ClosedTransaction[] | 'none'> {
    const row = await this.#endedRow(topicName, partition, peerTopicId);
    return row?.closedTransactions ?? 'none';
  }

  async #endedRow(
    topicName: string,
    partition: number,
    peerTopicId: Uuid | undefined,
  ): Promise<MirrorStateRow | undefined> {
    const peer = await this.#reading.run();
    if (peer === 'absent') return undefined;
    const id = peerTopicId ?? (await this.#topicId(topicName).run());
    const topic = { name: topicName, id };
    return endedRowIn(peer.rows, topic, partition, this.#ownClusterId);
  }

  #topicId(name: string): SharedRun<Uuid> {
    const known = this.#topicIds.get(name) ?? new SharedRun(() => this.#lookUp(name));
    this.#topicIds.set(name, known);
    return known;
  }

  async #lookUp(name: string): Promise<Uuid> {
    const client = peerClient(this.#runtime, this.#settings, 'twinlog-peer-rows');
    try {
      return (await client.topic(name, LOOK_UP_BOUND_MS)).id;
    } catch (error) {
      throw peerFailure(error);
    } finally {
      client.close();
    }
  }
}
