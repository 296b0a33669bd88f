/**
 * Makes native topics of mirror topics whose guests are all gone for good (G18a).
 *
 * Run by `twinlog guest rescue`, outside any broker. It asks every Apache replica for its log, has
 * the longest one elected, takes its end as the last mirrored offset, ends what transactions are
 * open there, and leaves the rest to the same job that ends a failover (`handover.ts`). Each step
 * looks at what is, so that the whole may be cut short anywhere and repeated. Invariants:
 * - Nothing is begun while a guest lives: it is the guest that fails over then.
 * - Rows are written in place of a guest that is gone: should it return, it is fenced.
 * - No writer gets in before the rows say STOPPED: the lock is set before anybody is elected.
 * - No group is above the end of a log when others can write there.
 * - The last mirrored offset, and which transactions end there, is durable before a marker is
 *   written above it: a failback must know (G24a).
 */
import type { Runtime } from '../../io/runtime.ts';
import { ConfigResourceType, type MetadataImage, NO_LEADER } from '../../metadata/image.ts';
import { guestSourceId } from '../../mirror/producer-id-mapping.ts';
import type { MirrorStateRow, RowKey } from '../../mirror/state-row.ts';
import { type MirrorEvent, step } from '../../mirror/states.ts';
import { planClosing } from '../../mirror/transaction-closing.ts';
import { type ErrorCode, errorName, errors } from '../../protocol/errors.ts';
import {
  ElectLeadersRequest,
  ElectLeadersResponse,
} from '../../protocol/messages/43-elect-leaders.ts';
import { cordonProblem, isCordoned, isGuest, isLive } from '../guest-brokers.ts';
import { alterTopicConfigs, type TopicChanges } from '../jobs/config-requests.ts';
import { Handover } from '../jobs/handover.ts';
import { isSettled } from '../jobs/handover-plan.ts';
import { GuestIsrRule } from '../jobs/isr-rule.ts';
import { JobOwnership } from '../jobs/job-ownership.ts';
import {
  type JobContext,
  type JobController,
  type JobStore,
  nameOf,
  type PartitionName,
} from '../jobs/job-ports.ts';
import { byTopic, reassign } from '../jobs/reassignments.ts';
import { TopicRows } from '../jobs/topic-rows.ts';
import { finalBeforeLock, lockChanges } from '../jobs/topic-settings.ts';
import type { LoweredGroups, RescuedLog } from './rescue-groups.ts';
import type { AskedPartition, ReplicaAnswer } from './rescue-logs.ts';
import {
  electionOrder,
  isLed,
  type LostPartition,
  lostPartitions,
  planPartition,
  type RescuePartition,
} from './rescue-plan.ts';
import type { ClosedTransaction, OpenProducer } from './rescue-transactions.ts';

const UNCLEAN = 1;
const ELECTION_TIMEOUT_MS = 30_000;
/** How long the metadata may take to show what was done, in ms. */
const SHOWN_BOUND_MS = 30_000;
/** How long handing over may take without any progress, in ms. */
const HANDOVER_BOUND_MS = 120_000;
const HANDOVER_PAUSE_MS = 300;

/** A step that could not be made, as a sentence for people. */
export class RescueFailed extends Error {
  override readonly name = 'RescueFailed';
}

/** What became of a partition. */
export interface Rescued extends PartitionName {
  readonly leader: number;
  readonly lastMirroredOffset: number;
  readonly closed: readonly ClosedTransaction[];
  /** Where others go on: no group is above it. */
  readonly end: number;
  readonly lowered: LoweredGroups;
}

/** The cluster as a rescue needs it; see `ClusterLook`. */
export interface RescueCluster {
  readonly image: MetadataImage;
  readonly controller: JobController;
  readonly store: JobStore & { known(key: RowKey): MirrorStateRow | undefined };
  pause(ms?: number): Promise<void>;
}

/** What a rescue asks of the brokers; each rejects with a `ClusterError`. */
export interface RescueBrokers {
  /** The logs of one broker, by {@link nameOf}. */
  logs(id: number, asked: readonly AskedPartition[]): Promise<ReadonlyMap<string, ReplicaAnswer>>;
  /** Where leader epochs, one for each partition of a topic, ended. */
  epochEnds(
    topic: string,
    epochs: ReadonlyMap<number, number>,
  ): Promise<ReadonlyMap<number, number>>;
  /** What a mirror left open in the log of one broker, by {@link nameOf}; none where not told. */
  openAt(
    id: number,
    partitions: readonly PartitionName[],
  ): Promise<ReadonlyMap<string, readonly OpenProducer[]>>;
  /** What a mirror left open, by {@link nameOf}. */
  open(partitions: readonly PartitionName[]): Promise<ReadonlyMap<string, readonly OpenProducer[]>>;
  /** Aborts what a mirror left open; what that was, by {@link nameOf}. */
  abort(
    partitions: readonly PartitionName[],
  ): Promise<ReadonlyMap<string, readonly ClosedTransaction[]>>;
  /** Lowers what groups committed above the ends of logs; what that was, by {@link nameOf}. */
  lowerGroups(logs: readonly RescuedLog[]): Promise<ReadonlyMap<string, LoweredGroups>>;
}

/** Where a partition ends. */
interface Settled {
  readonly lastMirroredOffset: number;
  /** The last mirrored offset, or, of a log that never was mirrored, its end. */
  readonly end: number;
}

const NO_GROUPS: LoweredGroups = { groups: [], problem: undefined };

/** What a {@link Rescue} is made of. */
export interface RescueOptions {
  readonly look: RescueCluster;
  readonly brokers: RescueBrokers;
  /** The lost guest in whose place rows are written. */
  readonly inPlaceOf: number;
  /** Undefined: all. */
  readonly mirrors: readonly string[] | undefined;
  /** Told of each step. */
  readonly onStep: (what: string) => void;
}

/** See the file header. */
export class Rescue {
  readonly #runtime: Pick<Runtime, 'clock' | 'logger' | 'random'>;
  readonly #options: RescueOptions;
  readonly #look: RescueCluster;
  readonly #context: JobContext;
  readonly #ownership: JobOwnership;

  constructor(runtime: Pick<Runtime, 'clock' | 'logger' | 'random'>, options: RescueOptions) {
    this.#runtime = runtime;
    this.#options = options;
    const { look, inPlaceOf: brokerId } = options;
    this.#look = look;
    const { controller, store } = look;
    const image = () => look.image;
    const topicRows = new TopicRows(store);
    this.#context = { runtime, brokerId, controller, store, topicRows, image };
    this.#ownership = new JobOwnership(this.#context);
  }

  /** Looks at every partition and its replicas; changes nothing. */
  async plan(): Promise<RescuePartition[]> {
    const lost = this.#lost();
    const { image } = this.#look;
    const byBroker = new Map<number, AskedPartition[]>();
    for (const { topic, partition, apache } of lost) {
      const { leaderEpoch } = partition;
      const asked = { topic: topic.name, partition: partition.partition, leaderEpoch };
      for (const id of apache.filter((each) => isLive(image, each))) {
        byBroker.set(id, [...(byBroker.get(id) ?? []), asked]);
      }
    }
    const logs = await Promise.all(
      [...byBroker].map(([id, asked]) => this.#options.brokers.logs(id, asked)),
    );
    const planned = lost.map((each) => {
      const name = nameOfLost(each);
      const answers = logs.flatMap((log): ReplicaAnswer[] => {
        const answer = log.get(name);
        return answer === undefined ? [] : [answer];
      });
      return planPartition(image, each, answers);
    });
    return await this.#withUndecided(planned);
  }

  /** With the transactions that are open in the logs of those who are to lead. */
  async #withUndecided(planned: readonly RescuePartition[]): Promise<RescuePartition[]> {
    const ids = new Set(planned.flatMap(({ leader }) => leader?.brokerId ?? []));
    const answers = await Promise.all(
      [...ids].map(async (id) => {
        const asked = planned.filter(({ leader }) => leader?.brokerId === id);
        return [id, await this.#options.brokers.openAt(id, asked.map(nameParts))] as const;
      }),
    );
    const byLeader = new Map(answers);
    return planned.map((each) => {
      const open = byLeader.get(each.leader?.brokerId ?? NO_LEADER)?.get(nameOfLost(each));
      const undecided = open?.map(({ producerId, currentTxnFirstOffset: firstOffset }) => {
        const sourceProducerId = guestSourceId(this.#tagOf(each), producerId);
        return { producerId, sourceProducerId, firstOffset };
      });
      return { ...each, undecided };
    });
  }

  #tagOf({ mirror }: LostPartition): number {
    return this.#context.store.settings(mirror)?.producerIdTag ?? 0;
  }

  #lost(): LostPartition[] {
    return lostPartitions(this.#look.image, this.#look.store, this.#options.mirrors);
  }

  /** Does all of it; rejects with {@link RescueFailed}. What nobody can lead is left out. */
  async run(): Promise<Rescued[]> {
    const { onStep } = this.#options;
    const planned = (await this.plan()).filter(({ leader }) => leader !== undefined);
    const topics = [...new Set(planned.map(({ topic }) => topic.name))];
    const named = new Set(planned.flatMap(({ apache }) => apache));
    const problem = cordonProblem(this.#look.image, [...named]);
    if (problem !== undefined) throw new RescueFailed(`Nothing is changed: ${problem}`);
    onStep(`taking the mirrors over from the lost guests: ${topics.length} topics`);
    await this.#detach(planned);
    onStep('locking the topics against writers');
    await this.#lock(topics);
    await this.#elect(planned);
    onStep('recording the last mirrored offsets');
    const ends = await this.#settle(planned);
    onStep('ending open transactions');
    const closed = await this.#options.brokers.abort(planned.map(nameParts));
    onStep('lowering group offsets above the ends of the logs');
    const lowered = await this.#options.brokers.lowerGroups(
      planned.map((each) => {
        const { topic, partition } = nameParts(each);
        const end = ends.get(nameOfLost(each))?.end ?? 0;
        return { topic, topicId: each.topic.id, partition, end };
      }),
    );
    onStep('handing the topics over to the brokers of the cluster');
    await this.#handOver(new Set(planned.map(nameOfLost)));
    return planned.map((each) => {
      const name = nameOfLost(each);
      const { topic, partition } = nameParts(each);
      return {
        topic,
        partition,
        leader: this.#now(each).leader,
        lastMirroredOffset: ends.get(name)?.lastMirroredOffset ?? -1,
        closed: closed.get(name) ?? [],
        end: ends.get(name)?.end ?? -1,
        lowered: lowered.get(name) ?? NO_GROUPS,
      };
    });
  }

  /** Membership ends, so that no guest that returns mirrors any more. */
  async #detach(planned: readonly RescuePartition[]): Promise<void> {
    for (const mirror of new Set(planned.map((each) => each.mirror))) {
      const refused = await this.#ownership.ensure(mirror);
      if (refused !== undefined) throw new RescueFailed(refused.message);
    }
    for (const { name, id } of new Set(planned.map(({ topic }) => topic))) {
      const code = await this.#context.topicRows.change(name, (row) => {
        if (row.removed) return undefined;
        const membershipOffset = Math.max(this.#look.image.offset, row.membershipOffset + 1);
        return { ...row, topicId: id, removed: true, membershipOffset };
      });
      this.#check(code, `The end of the membership of ${name}`);
    }
  }

  #check(code: ErrorCode, what: string): void {
    if (code === errors.NONE.code) return;
    const why =
      code === errors.NOT_COORDINATOR.code
        ? 'a guest writes the mirror state again, so it lives: fail over with `mirrors remove`'
        : errorName(code);
    throw new RescueFailed(`${what} cannot be recorded: ${why}`);
  }

  async #lock(topics: readonly string[]): Promise<void> {
    const { controller, store, topicRows } = this.#context;
    const wanted: TopicChanges[] = [];
    for (const topic of topics) {
      const overrides = this.#look.image.configs(ConfigResourceType.TOPIC, topic);
      const changes = lockChanges(overrides);
      const row = store.topic(topic);
      if (row === undefined || changes.length === 0) continue;
      const finalConfigs = finalBeforeLock(overrides, row.finalConfigs);
      if (finalConfigs !== row.finalConfigs) {
        const code = await topicRows.change(topic, (current) => ({ ...current, finalConfigs }));
        this.#check(code, `What the lock of ${topic} replaces`);
      }
      wanted.push({ topic, changes });
    }
    const [refused] = await alterTopicConfigs(controller, wanted);
    if (refused !== undefined) throw new RescueFailed(`Topic ${refused[0]}: ${refused[1]}`);
    await this.#until('the locks', () =>
      topics.every(
        (topic) =>
          lockChanges(this.#look.image.configs(ConfigResourceType.TOPIC, topic)).length === 0,
      ),
    );
  }

  /** The partition as the metadata has it by now. */
  #now({ topic, partition }: LostPartition) {
    const now = this.#look.image.topicsById.get(topic.id)?.partitions.get(partition.partition);
    return now ?? partition;
  }

  async #elect(planned: readonly RescuePartition[]): Promise<void> {
    const { controller } = this.#context;
    const leaderless = planned.filter((each) => !isLed(this.#look.image, this.#now(each)));
    if (leaderless.length === 0) return;
    this.#options.onStep(`electing the longest replica of ${leaderless.length} partitions`);
    const { image } = this.#look;
    // The dead one's cordon is there to stay; without it the order is the same for an election.
    const order = leaderless.map((each) => ({
      ...nameParts(each),
      replicas: electionOrder(each).filter((id) => !(isGuest(image, id) && isCordoned(image, id))),
    }));
    const [refused] = await reassign(controller, order, image);
    if (refused !== undefined) throw new RescueFailed(`${refused[0]}: ${refused[1]}`);
    const response = await controller.send(ElectLeadersRequest, ElectLeadersResponse, {
      electionType: UNCLEAN,
      topicPartitions: [...byTopic(order)].map(([topic, list]) => ({
        topic,
        partitions: list.map(({ partition }) => partition),
      })),
      timeoutMs: ELECTION_TIMEOUT_MS,
    });
    if (response.errorCode !== errors.NONE.code) {
      throw new RescueFailed(`No leader is elected: ${errorName(response.errorCode)}`);
    }
    await this.#until('the election', () =>
      leaderless.every((each) => this.#now(each).leader === each.leader?.brokerId),
    );
  }

  /** Rows become a settled STOPPING, in two durable moves. */
  async #settle(planned: readonly RescuePartition[]): Promise<Map<string, Settled>> {
    const ends = new Map<string, Settled>();
    const open = await this.#options.brokers.open(planned.map(nameParts));
    for (const [topic, list] of byTopic(
      planned.map((each) => ({ ...nameParts(each), of: each })),
    )) {
      const found = await this.#epochEnds(
        topic,
        list.map(({ of }) => of),
      );
      await Promise.all(
        list.map(async ({ partition, of }) => {
          const producers = open.get(nameOfLost(of)) ?? [];
          // What the elected log has less of than was promised is not there any more.
          const epochEnd = found.get(partition) ?? -1;
          const known = epochEnd >= 0 ? epochEnd : (of.leader?.end ?? 0);
          const lastMirroredOffset = await this.#settleOne(of, known, producers);
          const end = of.row?.reachedMirroring === true ? lastMirroredOffset : known;
          ends.set(nameOfLost(of), { lastMirroredOffset, end });
        }),
      );
    }
    return ends;
  }

  /** Where the last epoch of a guest ended, by partition: nobody else's records are below. */
  async #epochEnds(
    topic: string,
    lost: readonly RescuePartition[],
  ): Promise<ReadonlyMap<number, number>> {
    const epochs = lost.map((each): [number, number] => [
      each.partition.partition,
      each.row?.leaderEpoch ?? this.#now(each).leaderEpoch,
    ]);
    return await this.#options.brokers.epochEnds(topic, new Map(epochs));
  }

  async #settleOne(
    lost: RescuePartition,
    known: number,
    open: readonly OpenProducer[],
  ): Promise<number> {
    const { topic, mirror } = lost;
    const { partition } = lost.partition;
    const key: RowKey = { mirror, topicId: topic.id, partition };
    const before = lost.row;
    if (isSettled(before) && before !== undefined) {
      if (known >= before.lastMirroredOffset) return before.lastMirroredOffset;
      await this.#move(key, lost, { type: 'lower', lastMirroredOffset: known });
      return known;
    }
    const membershipOffset = this.#look.image.membership(topic.name)?.offset ?? -1;
    await this.#move(key, lost, { type: 'stop', membershipOffset });
    const hasMirrored = before?.reachedMirroring === true;
    const closed = this.#closing(lost, known, open);
    if (closed.length > 0) await this.#move(key, lost, { type: 'closing', transactions: closed });
    // The guest may have died amid its own markers.
    const end = closed[0]?.markerOffset ?? known;
    const lastMirroredOffset = hasMirrored ? end : undefined;
    await this.#move(key, lost, { type: 'settled', lastMirroredOffset });
    return lastMirroredOffset ?? before?.lastMirroredOffset ?? -1;
  }

  /** Those with a marker, and those that get one: it will not lie below `end`. */
  #closing(lost: RescuePartition, end: number, open: readonly OpenProducer[]) {
    const listed = { closedTransactions: [], closedAtSource: [], ...lost.row };
    const tag = this.#tagOf(lost);
    const log = { logEndOffset: end, activeProducers: () => open };
    const planned = planClosing(log, listed, (id) => guestSourceId(tag, id));
    return planned.map((each) => ({ ...each, markerOffset: Math.min(each.markerOffset, end) }));
  }

  async #move(key: RowKey, lost: RescuePartition, event: MirrorEvent): Promise<void> {
    const row = this.#look.store.known(key);
    const { leaderEpoch: now } = this.#now(lost);
    const known = row?.leaderEpoch ?? now;
    // Until the offset is recorded, a repetition has to know the guest's last epoch.
    const leaderEpoch = event.type === 'settled' ? Math.max(now, known) : known;
    const { topic } = lost;
    const input = { topicName: topic.name, partition: key.partition, leaderEpoch, row };
    const next = step(input, event, this.#runtime.clock.wallMs());
    if ('illegal' in next) throw new RescueFailed(`${nameOfLost(lost)}: ${next.illegal}`);
    if (next.row === undefined) return;
    this.#check(await this.#look.store.write(key, next.row), `The state of ${nameOfLost(lost)}`);
  }

  /** The same job as at the end of a failover, until every row says STOPPED. */
  async #handOver(names: ReadonlySet<string>): Promise<void> {
    const { clock } = this.#runtime;
    const image = () => this.#look.image;
    const handover = new Handover({
      context: this.#context,
      ownership: this.#ownership,
      isrRule: new GuestIsrRule({ image, inMaintenance: () => false }),
      fetchedRecently: () => true,
      reviewIsr: () => {},
    });
    let left = Number.POSITIVE_INFINITY;
    let progressMs = clock.monotonicMs();
    for (;;) {
      await handover.pass();
      const open = this.#lost().filter((each) => names.has(nameOfLost(each)));
      if (open.length === 0) return;
      if (open.length < left) progressMs = clock.monotonicMs();
      left = Math.min(left, open.length);
      if (clock.monotonicMs() - progressMs > HANDOVER_BOUND_MS) {
        const [wait] = handover.explain().filter((each) => names.has(nameOf(each)));
        const why = wait === undefined ? '' : `: ${nameOf(wait)}: ${wait.reason}`;
        throw new RescueFailed(`${open.length} partitions are not handed over yet${why}`);
      }
      await this.#look.pause(HANDOVER_PAUSE_MS);
    }
  }

  async #until(what: string, isDone: () => boolean): Promise<void> {
    const { clock } = this.#runtime;
    const deadlineMs = clock.monotonicMs() + SHOWN_BOUND_MS;
    while (!isDone()) {
      if (clock.monotonicMs() > deadlineMs) {
        throw new RescueFailed(`The metadata does not show ${what} in ${SHOWN_BOUND_MS} ms`);
      }
      await this.#look.pause();
    }
  }
}

function nameParts({ topic, partition }: LostPartition): PartitionName {
  return { topic: topic.name, partition: partition.partition };
}

function nameOfLost(lost: LostPartition): string {
  return nameOf(nameParts(lost));
}
