/**
 * One partition with its driver, over a real log, rows in memory and a scripted source.
 *
 * What a test says about the source, the rows and the role is there before it calls `drive`.
 */
import assert from 'node:assert/strict';
import type { TestContext } from 'node:test';
import type { MirrorMembership } from '../../src/metadata/image.ts';
import { EMBEDDED_ROLE, type MirrorRole } from '../../src/mirror/driver-context.ts';
import { PartitionDriver } from '../../src/mirror/partition-driver.ts';
import type { PartitionFetch } from '../../src/mirror/partition-fetch.ts';
import { MirrorPartitionStates } from '../../src/mirror/partition-states.ts';
import { DEFAULT_MIRROR_BROKER_SETTINGS, parseMirrorSettings } from '../../src/mirror/settings.ts';
import type { MirrorStateRow } from '../../src/mirror/state-row.ts';
import { MirrorState, type MirrorStateName } from '../../src/mirror/states.ts';
import type { ErrorCode } from '../../src/protocol/errors.ts';
import type { Partition } from '../../src/replication/partition.ts';
import { settle } from '../replication/fakes.ts';
import { startTestBroker, type TestBroker } from '../replication/harness.ts';
import { imageWith, row, ScriptedSource, TestCoordinator } from './harness.ts';

/** The topic belongs to mirror `m`. */
export const MEMBER: MirrorMembership = { mirror: 'm', removed: false, offset: 10 };
/** It does not any more. */
export const REMOVED: MirrorMembership = { mirror: 'm', removed: true, offset: 20 };

/** See the file header. */
export class Stage {
  readonly broker: TestBroker;
  readonly rows: TestCoordinator;
  readonly states = new MirrorPartitionStates();
  readonly source: ScriptedSource;
  readonly partition: Partition;
  readonly illegal: string[] = [];
  readonly elected: number[] = [];
  /** What the next elections answer; success when there is none. */
  readonly electionErrors: ErrorCode[] = [];
  role: MirrorRole = EMBEDDED_ROLE;
  /** What groups were asked to be lowered to, and in which state that was. */
  readonly lowered: { readonly offset: number; readonly state: MirrorStateName }[] = [];
  /** Why the next lowerings fail; they succeed when there is none. */
  readonly loweringProblems: string[] = [];
  driver: PartitionDriver | undefined;

  constructor(broker: TestBroker) {
    this.broker = broker;
    this.rows = new TestCoordinator(broker.runtime, imageWith(['m']));
    this.rows.lead();
    broker.gate.set('t', { topic: 't', mirror: 'm', state: 'MIRRORING' });
    broker.createTopic('t');
    this.partition = broker.partition('t');
    this.source = new ScriptedSource(this.partition.topicId);
  }

  drive(membership: MirrorMembership): PartitionDriver {
    const source = this.source.asSource();
    const settings = parseMirrorSettings(
      new Map([
        ['bootstrap.servers', 's:1'],
        ['mirror.lost.and.found.enable', 'false'],
      ]),
    );
    const driver = new PartitionDriver(
      {
        runtime: this.broker.runtime,
        clusterId: 'here',
        store: this.rows.coordinator,
        states: this.states,
        controller: {
          electSameLeader: async (_id, _partition, leaderEpoch) => {
            this.elected.push(leaderEpoch);
            const error = this.electionErrors.shift();
            if (error !== undefined) return { error, message: 'not now' };
            return { error: 0, leaderEpoch: leaderEpoch + 1 };
          },
        },
        limits: DEFAULT_MIRROR_BROKER_SETTINGS,
        role: this.role,
        lowerGroupOffsets: async ({ topic, topicId, partition }, offset) => {
          assert.deepEqual({ mirror: 'm', topicId, partition }, this.key, topic);
          this.lowered.push({ offset, state: this.gate() });
          return this.loweringProblems.shift();
        },
        mirror: () => ({ source, settings }),
        onIllegal: (message) => this.illegal.push(message),
      },
      this.partition,
      membership,
    );
    this.driver = driver;
    driver.start();
    return driver;
  }

  get key() {
    return { mirror: 'm', topicId: this.partition.topicId, partition: 0 };
  }

  async row(): Promise<MirrorStateRow | undefined> {
    const answer = await this.rows.coordinator.read(this.key);
    assert.ok('row' in answer);
    return answer.row;
  }

  /** Puts a row into the log as an earlier leadership left it. */
  async recorded(state: MirrorStateName, fields: Partial<MirrorStateRow> = {}): Promise<void> {
    const path: MirrorStateName[] = ['PREPARING'];
    if (state === 'FAILED' || state === 'STOPPING') path.push('MIRRORING', state);
    else if (state === 'STOPPED') path.push('MIRRORING', 'STOPPING', state);
    else if (state !== 'PREPARING') path.push(state);
    let before: MirrorStateRow | undefined;
    for (const [index, name] of path.entries()) {
      const previousState = before?.state ?? MirrorState.UNKNOWN;
      before = row(name, { previousState, membershipOffset: 10, ...fields, stateEpoch: index + 1 });
      assert.equal(await this.rows.coordinator.write(this.key, before), 0);
    }
  }

  gate(): MirrorStateName {
    return this.states.state(this.partition.topicId, 0, 'm');
  }

  fetch(): PartitionFetch {
    const [fetch] = this.source.registered.keys();
    assert.ok(fetch, 'the partition is registered with its source');
    return fetch;
  }

  deliver(records: Uint8Array): string {
    const fields = { highWatermark: 100, lastStableOffset: 100, logStartOffset: 0 };
    return this.fetch().onFetched({ errorCode: 0, ...fields, records: records.slice() }).kind;
  }
}

/** A stage that is closed with the test. */
export async function stage(t: TestContext): Promise<Stage> {
  const made = new Stage(await startTestBroker(t));
  t.after(() => made.driver?.close());
  await settle();
  return made;
}
