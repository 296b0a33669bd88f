/**
 * Whether a native topic of this cluster may be taken (back) into a mirror, and from which offsets
 * (G29, G33): the checks before anything is changed.
 *
 * Used by `topic-additions.ts` for a topic that exists. The two sides hold the same records below
 * the last mirrored offset: that of the other side, which mirrored the topic from here until its
 * failover, or that of an earlier episode of ours, whichever is higher and stands the comparison.
 * What lies above it here will be kept aside and cut by the partition's driver. Invariants:
 * - Every refusal is a sentence, and nothing was changed by then.
 * - The offsets are in the topic's row before any partition is moved (`takeover.ts`).
 */
import type { Uuid } from '../../base/uuid.ts';
import type { Runtime } from '../../io/runtime.ts';
import { type Refusal, refuse } from '../../metadata/decide.ts';
import {
  ConfigResourceType,
  type MetadataImage,
  type PartitionRegistration,
  type TopicImage,
} from '../../metadata/image.ts';
import { MirrorFailure } from '../../mirror/causes.ts';
import type { KeyedRow } from '../../mirror/coordinator-shard.ts';
import { COMPARE_BYTES, compareBelow } from '../../mirror/prepare.ts';
import { type HostPort, type MirrorSettings, parseMirrorSettings } from '../../mirror/settings.ts';
import { SourceClient, type SourceClientOptions } from '../../mirror/source-client.ts';
import type { SourceCluster } from '../../mirror/source-cluster.ts';
import { MirrorState, stateName } from '../../mirror/states.ts';
import type { ConnectionSecurity } from '../../protocol/connection-security.ts';
import { errorName, errors, isRetriable } from '../../protocol/errors.ts';
import { OffsetSpec } from '../../replication/list-offsets.ts';
import { isGuest, isLive } from '../guest-brokers.ts';
import type { MirrorTopicRow } from '../state/catalog.ts';
import { lastMirroredOffsetIn, readPeerRows } from '../state/peer-rows.ts';
import { futureReplicas, isMoving } from './isr-rule.ts';
import { storeRefusal } from './job-ownership.ts';
import type { JobContext } from './job-ports.ts';
import { finalConfigs, isTiered } from './topic-settings.ts';

/** Partitions that are compared at a time. */
const MAX_COMPARING = 8;

/** What a {@link Failback} is made of. */
export interface FailbackOptions {
  readonly context: JobContext;
  /** This cluster's id. */
  readonly clusterId: string;
  /** A mirror's source; rejects with a {@link MirrorFailure} while it has none. */
  readonly source: (mirror: string) => SourceCluster;
  /** Where a broker of this cluster is reached by others; undefined: nowhere. */
  readonly addressOf: (brokerId: number) => HostPort | undefined;
  /** How connections to brokers of this cluster are secured. */
  readonly security: ConnectionSecurity | undefined;
  readonly membershipOffset: (previous: number | undefined) => number;
  /** Default: as they are in the source's cluster now. */
  readonly peerRows?: typeof readPeerRows;
  /** Default: connections of its own. */
  readonly connect?: (options: SourceClientOptions) => QuestionClient;
}

/** What asks leaders; a {@link SourceClient}. */
export type QuestionClient = Pick<SourceClient, 'listOffsets' | 'fetchAt' | 'close'>;

/** The topic that is to be taken. */
export interface FailbackWish {
  readonly mirror: string;
  readonly topic: TopicImage;
  readonly sourceTopicId: Uuid;
  /** Of the source's topic. */
  readonly partitions: number;
}

/** Up to where the sides are said to agree, by partition: the highest first. */
type Candidates = ReadonlyMap<number, readonly number[]>;

/** A partition with where it is read here. */
interface Compared {
  readonly partition: PartitionRegistration;
  readonly offset: number;
  readonly address: HostPort;
}

function refused(message: string): Refusal {
  return refuse(errors.INVALID_REQUEST.code, message);
}

/** See the file header. */
export class Failback {
  readonly #runtime: Runtime;
  readonly #options: FailbackOptions;

  constructor(runtime: Runtime, options: FailbackOptions) {
    this.#runtime = runtime;
    this.#options = options;
  }

  /** Undefined once the membership is recorded; `none`: the sides never shared this topic. */
  async take(wish: FailbackWish): Promise<Refusal | 'none' | undefined> {
    try {
      const candidates = await this.#candidates(wish);
      if (candidates === 'none' || 'error' in candidates) return candidates;
      const common = this.#localProblem(wish) ?? (await this.#compare(wish, candidates));
      return 'error' in common ? common : await this.#record(wish, common);
    } catch (error) {
      if (!(error instanceof MirrorFailure)) throw error;
      const why = `Topic '${wish.topic.name}' is not taken into the mirror: ${error.message}.`;
      return refuse(errors.BROKER_NOT_AVAILABLE.code, why);
    }
  }

  // --- where did the sides agree? ---------------------------------------------------------------

  #settings(mirror: string): MirrorSettings {
    const settings = this.#options.context.store.settings(mirror);
    if (settings !== undefined) return parseMirrorSettings(settings.configs);
    throw new MirrorFailure('DESTINATION_BUSY', `mirror ${mirror} has no settings`);
  }

  async #candidates(wish: FailbackWish): Promise<Candidates | 'none' | Refusal> {
    const { topic, sourceTopicId } = wish;
    const { peerRows = readPeerRows } = this.#options;
    const peer = await peerRows(
      this.#runtime,
      this.#settings(wish.mirror),
      ({ row }) => row.topicName === topic.name,
    );
    const rows = peer === 'absent' ? [] : this.#rowsFromHere(peer.rows, wish);
    const active = rows.find(({ row }) => row.state !== MirrorState.STOPPED);
    if (active !== undefined) {
      const { partition, state } = active.row;
      return refused(
        `The source still mirrors topic '${topic.name}' from here: partition ${partition} is ` +
          `${stateName(state)} in its mirror '${active.key.mirror}'. Remove it there first.`,
      );
    }
    const named = { name: topic.name, id: sourceTopicId };
    const found = new Map<number, readonly number[]>();
    for (const index of topic.partitions.keys()) {
      const theirs = lastMirroredOffsetIn(rows, named, index, this.#options.clusterId);
      const ours = this.#ownOffset(wish, index);
      const offsets = [theirs, ours].filter((offset) => typeof offset === 'number');
      if (offsets.length > 0)
        found.set(
          index,
          offsets.sort((a, b) => b - a),
        );
    }
    if (found.size === 0) return 'none';
    const missing = [...topic.partitions.keys()].filter((index) => !found.has(index));
    if (missing.length === 0) return found;
    return refused(
      `Of topic '${topic.name}' it is not known up to where partition(s) ${missing.join(', ')} ` +
        'were mirrored: neither side has a record of it, so the topic cannot be taken back.',
    );
  }

  /** Rows of partitions that the source mirrored from this very topic. */
  #rowsFromHere(rows: readonly KeyedRow[], { topic, sourceTopicId }: FailbackWish): KeyedRow[] {
    return rows.filter(
      ({ key, row }) =>
        key.topicId === sourceTopicId &&
        row.sourceClusterId === this.#options.clusterId &&
        row.sourceTopicId === topic.id,
    );
  }

  /** Of an episode in which this topic was mirrored from that one. */
  #ownOffset({ mirror, topic, sourceTopicId }: FailbackWish, index: number): number | undefined {
    const { store } = this.#options.context;
    const { clusterId } = this.#options.source(mirror);
    const ended = store
      .mirrors()
      .flatMap((name) => [...store.rows(name)])
      .filter(
        ({ key, row }) =>
          key.topicId === topic.id &&
          key.partition === index &&
          row.state === MirrorState.STOPPED &&
          row.sourceClusterId === clusterId &&
          row.sourceTopicId === sourceTopicId &&
          row.lastMirroredOffset >= 0,
      );
    ended.sort((a, b) => b.row.membershipOffset - a.row.membershipOffset);
    return ended[0]?.row.lastMirroredOffset;
  }

  // --- may it be taken here? --------------------------------------------------------------------

  #localProblem(wish: FailbackWish): Refusal | undefined {
    const { brokerId, image } = this.#options.context;
    const now = image();
    const { topic, partitions } = wish;
    const { name } = topic;
    if (partitions !== topic.partitions.size) {
      return refused(
        `Topic '${name}' has ${topic.partitions.size} partition(s) here and ${partitions} at the ` +
          'source: both sides need the same number.',
      );
    }
    if (isTiered(now, now.configs(ConfigResourceType.TOPIC, name))) {
      return refused(
        `Topic '${name}' has remote.storage.enable=true: records in tiered storage cannot be cut ` +
          'back (G33).',
      );
    }
    if (!isLive(now, brokerId)) {
      const message = `Guest ${brokerId} is fenced: try again when it is not.`;
      return refuse(errors.BROKER_NOT_AVAILABLE.code, message);
    }
    for (const partition of topic.partitions.values()) {
      const problem = placementProblem(now, partition);
      if (problem !== undefined) return problem;
    }
    return undefined;
  }

  // --- do both hold the same? -------------------------------------------------------------------

  async #compare(
    wish: FailbackWish,
    candidates: Candidates,
  ): Promise<ReadonlyMap<number, number> | Refusal> {
    const { security, context, connect } = this.#options;
    const settings = { ...this.#settings(wish.mirror), security };
    const asked = { clientId: `twinlog-guest-${context.brokerId}-failback`, settings };
    const client = connect?.(asked) ?? new SourceClient(this.#runtime, asked);
    const common = new Map<number, number>();
    try {
      const all = [...wish.topic.partitions.values()];
      for (let from = 0; from < all.length; from += MAX_COMPARING) {
        const answers = await Promise.all(
          all.slice(from, from + MAX_COMPARING).map(async (partition) => {
            const offsets = candidates.get(partition.partition) ?? [];
            const answer = await this.#highest(client, wish, partition, offsets);
            if (typeof answer !== 'number') return answer;
            common.set(partition.partition, answer);
            return undefined;
          }),
        );
        const problem = answers.find((answer) => answer !== undefined);
        if (problem !== undefined) return problem;
      }
      return common;
    } finally {
      client.close();
    }
  }

  /** The highest offset that stands the comparison, or why the last one does not. */
  async #highest(
    client: QuestionClient,
    wish: FailbackWish,
    partition: PartitionRegistration,
    offsets: readonly number[],
  ): Promise<number | Refusal> {
    const address = this.#options.addressOf(partition.leader);
    if (address === undefined) return noLeader(partition);
    let problem: Refusal = noLeader(partition);
    for (const offset of offsets) {
      const compared = { partition, offset, address };
      const found = await this.#comparePartition(client, wish, compared).catch(divergence);
      if (found === undefined) return offset;
      problem = found;
    }
    return problem;
  }

  async #comparePartition(
    client: QuestionClient,
    { mirror }: FailbackWish,
    compared: Compared,
  ): Promise<Refusal | undefined> {
    const { partition, offset } = compared;
    const { topic, partition: index } = partition;
    const here = await this.#range(client, compared.address, partition);
    const source = this.#options.source(mirror);
    const leader = await source.leader(topic, index);
    const there = await this.#range(source.client, leader.address, { topic, partition: index });
    const where = `partition ${topic}-${index}`;
    if (offset > here.latest || offset > there.latest) {
      const side = offset > here.latest ? 'here' : 'at the source';
      const end = offset > here.latest ? here.latest : there.latest;
      return refused(
        `Of ${where} both sides had offsets below ${offset}, but it ends at ${end} ${side}: ` +
          'records are missing.',
      );
    }
    if (offset < here.earliest) {
      return refused(
        `Of ${where} both sides had offsets below ${offset}, but it begins at ${here.earliest} ` +
          'here: what they shared was deleted. To copy it anew, delete the topic here first.',
      );
    }
    // Nothing below, or nothing left of it.
    if (offset === here.earliest) return undefined;
    const log = await this.#tailBelow(client, compared, here.earliest);
    const compare = { topic, partition: index, topicId: partition.topicId, log };
    await compareBelow(source, compare, await source.topic(topic), offset);
    return undefined;
  }

  async #range(
    client: QuestionClient,
    address: HostPort,
    { topic, partition }: { readonly topic: string; readonly partition: number },
  ): Promise<{ readonly earliest: number; readonly latest: number }> {
    const ask = async (timestamp: bigint): Promise<number> => {
      const question = { topic, partition, currentLeaderEpoch: -1, timestamp };
      const [answer] = await client.listOffsets(address, [question]);
      if (answer !== undefined && answer.errorCode === errors.NONE.code) return answer.offset;
      const code = answer?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
      const again = isRetriable(code) ? '; try again' : '';
      const message = `ListOffsets of ${topic}-${partition}: ${errorName(code)}${again}`;
      throw new MirrorFailure('SOURCE_LEADER_UNKNOWN', message);
    };
    return { earliest: await ask(OffsetSpec.EARLIEST), latest: await ask(OffsetSpec.LATEST) };
  }

  /** The batch right below the offset, as our leader has it, in the shape of a log. */
  async #tailBelow(client: QuestionClient, compared: Compared, logStartOffset: number) {
    const { partition, offset, address } = compared;
    const { topic, topicId, partition: index } = partition;
    const { errorCode, records } = await client.fetchAt(address, {
      topic,
      topicId,
      partition: index,
      offset: offset - 1,
      currentLeaderEpoch: -1,
      maxBytes: COMPARE_BYTES,
    });
    if (errorCode !== errors.NONE.code) {
      const message = `offset ${offset - 1} of ${topic}-${index} cannot be read here: ${errorCode}`;
      throw new MirrorFailure('DESTINATION_BUSY', message);
    }
    const chunks = [records];
    return {
      logStartOffset,
      logEndOffset: offset,
      read: () => ({ error: 0, records: chunks, bytes: records.length }) as const,
    };
  }

  // --- taking it --------------------------------------------------------------------------------

  /** The durable row; everything else follows from it (`takeover.ts`). */
  async #record(
    wish: FailbackWish,
    common: ReadonlyMap<number, number>,
  ): Promise<Refusal | undefined> {
    const { context, membershipOffset } = this.#options;
    const { mirror, topic, sourceTopicId } = wish;
    const image = context.image();
    const [partition] = topic.partitions.values();
    const apache = partition === undefined ? [] : apacheReplicas(image, partition);
    const row: MirrorTopicRow = {
      mirrorName: mirror,
      removed: false,
      membershipOffset: membershipOffset(context.store.topic(topic.name)?.membershipOffset),
      topicId: topic.id,
      sourceTopicId,
      finalConfigs: finalConfigs(image, image.configs(ConfigResourceType.TOPIC, topic.name)),
      targetReplicationFactor: apache.length,
      takeoverOffsets: [...topic.partitions.keys()]
        .sort((a, b) => a - b)
        .map((index) => common.get(index) ?? 0),
    };
    const code = await context.store.writeTopic(topic.name, row);
    const refusal = storeRefusal(code, `The addition of topic '${topic.name}'`);
    if (refusal !== undefined) return refusal;
    const fields = { mirror, topic: topic.name, offsets: (row.takeoverOffsets ?? []).join(',') };
    context.runtime.logger.info('native topic is taken into a mirror', fields);
    return undefined;
  }
}

function apacheReplicas(image: MetadataImage, partition: PartitionRegistration): number[] {
  return futureReplicas(partition).filter((id) => !isGuest(image, id));
}

/** Two histories are no passing trouble: another offset may do, or nothing will. */
function divergence(error: unknown): Refusal {
  if (error instanceof MirrorFailure && error.mirrorCause === 'SOURCE_DIVERGED') {
    return refused(`The topic is not taken into the mirror: ${error.message}.`);
  }
  throw error;
}

function noLeader({ topic, partition }: PartitionRegistration): Refusal {
  const message = `Partition ${topic}-${partition} has no leader that could be asked.`;
  return refuse(errors.LEADER_NOT_AVAILABLE.code, message);
}

function placementProblem(
  image: MetadataImage,
  partition: PartitionRegistration,
): Refusal | undefined {
  const { topic, partition: index } = partition;
  if (partition.leader < 0) return noLeader(partition);
  if (isMoving(partition)) {
    return refused(`Partition ${topic}-${index} is being reassigned: try again when that is done.`);
  }
  if (apacheReplicas(image, partition).length > 0) return undefined;
  return refused(`Partition ${topic}-${index} is on no Apache broker.`);
}
