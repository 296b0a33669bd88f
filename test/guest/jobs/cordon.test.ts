/**
 * The cordons of several guests (G7): a controller refuses to name any guest that is cordoned, so
 * whoever makes or moves partitions of all of them has all of them lifted, and put back.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { Cordon } from '../../../src/guest/jobs/cordon.ts';
import type { JobController } from '../../../src/guest/jobs/job-ports.ts';
import { ConfigResourceType } from '../../../src/metadata/image.ts';
import { QuorumUnavailable } from '../../../src/metadata/quorum/quorum-client.ts';
import { metadataRecord } from '../../../src/metadata/record-framing.ts';
import { ApiKey } from '../../../src/protocol/api-keys.ts';
import type * as configsApi from '../../../src/protocol/messages/44-incremental-alter-configs.ts';
import type { Message, MessageOf } from '../../../src/protocol/schema.ts';
import { broker, config, feature } from '../../metadata/harness.ts';
import { GUEST, OTHER_GUEST, TestCluster } from '../jobs-harness.ts';

const { BROKER } = ConfigResourceType;
const GUESTS = [GUEST, OTHER_GUEST] as const;

/** Two guests of one cluster whose heartbeats arrive at once. */
class Pair {
  readonly cluster = new TestCluster(
    feature('metadata.version', 30),
    broker(OTHER_GUEST),
    config(BROKER, String(OTHER_GUEST), 'twinlog.guest', 'true'),
  );
  readonly cordons = new Map<number, Cordon>();
  /** Flags that were set and cleared. */
  readonly said: string[] = [];
  unreachable = false;

  constructor() {
    for (const brokerId of GUESTS) this.cordons.set(brokerId, this.#cordon(brokerId));
    for (const brokerId of GUESTS) this.beat(brokerId);
  }

  #cordon(brokerId: number): Cordon {
    return new Cordon(this.cluster.runtime, {
      brokerId,
      controller: this.#controller,
      image: () => this.cluster.image,
      logDirs: this.cluster.image.brokers.get(brokerId)?.logDirs ?? [],
      heartbeatVersion: () => 2,
      heartbeatNow: () => this.beat(brokerId),
    });
  }

  readonly #controller: JobController = {
    send: async <Q extends Message, R extends Message>(
      { apiKey }: Q,
      _response: R,
      value: unknown,
    ): Promise<MessageOf<R>> => {
      await Promise.resolve();
      assert.equal(apiKey, ApiKey.IncrementalAlterConfigs);
      if (this.unreachable) throw new QuorumUnavailable('no controller');
      const { resources } = value as configsApi.IncrementalAlterConfigsRequest;
      for (const { resourceName, configs } of resources) {
        for (const { name, value: text } of configs) {
          this.said.push(`${resourceName} ${text}`);
          this.cluster.commit(config(BROKER, resourceName, name, text));
        }
      }
      const responses = resources.map((each) => ({ ...each, errorCode: 0, errorMessage: null }));
      return { responses } as unknown as MessageOf<R>;
    },
  };

  of(brokerId: number): Cordon {
    return this.cordons.get(brokerId) ?? assert.fail(`no guest ${brokerId}`);
  }

  /** The controller hears what the guest says of its directory. */
  beat(brokerId: number): void {
    const { epoch: brokerEpoch } = this.cluster.image.brokers.get(brokerId) ?? assert.fail();
    const cordonedLogDirs = [...this.of(brokerId).cordonedLogDirs()];
    const change = { brokerId, brokerEpoch, cordonedLogDirs };
    this.cluster.commit(metadataRecord('BrokerRegistrationChangeRecord', change));
  }

  /** The guests that the controller would refuse to name. */
  cordoned(): number[] {
    const { brokers } = this.cluster.image;
    return GUESTS.filter((id) => (brokers.get(id)?.cordonedLogDirs.length ?? 0) > 0);
  }

  async passes(): Promise<void> {
    for (const brokerId of GUESTS) await this.of(brokerId).pass();
  }
}

/** Lets what waits for the metadata look at it again. */
async function look({ cluster }: Pair): Promise<void> {
  await new Promise(setImmediate);
  cluster.runtime.clock.advance(20);
  await new Promise(setImmediate);
}

test('G7: one guest has the other lifted as long as it needs, and then put back', async () => {
  const pair = new Pair();
  assert.deepEqual(pair.cordoned(), [...GUESTS]);
  let seen: number[] | undefined;
  const action = pair.of(GUEST).whileLifted(async () => {
    seen = pair.cordoned();
  });
  await look(pair);
  assert.deepEqual([seen, pair.cordoned()], [undefined, [OTHER_GUEST]], 'the other is waited for');
  await pair.passes();
  await look(pair);
  await action;
  assert.deepEqual(seen, []);
  await pair.passes();
  await pair.passes();
  assert.deepEqual(pair.cordoned(), [...GUESTS]);
  assert.deepEqual(pair.said, [`${GUEST} true`, `${GUEST} null`]);
});

test('G7: both at a time wait for each other, and neither ends what the other needs', async () => {
  const pair = new Pair();
  const ends: (() => void)[] = [];
  const begun: number[] = [];
  const actions = GUESTS.map((id) =>
    pair.of(id).whileLifted(() => {
      begun.push(id);
      return new Promise<void>((resolve) => ends.push(resolve));
    }),
  );
  await look(pair);
  await look(pair);
  assert.deepEqual(begun.sort(), [...GUESTS]);
  ends[0]?.();
  await Promise.race(actions);
  await pair.passes();
  assert.deepEqual(pair.cordoned(), []);
  ends[1]?.();
  await Promise.all(actions);
  await pair.passes();
  await pair.passes();
  assert.deepEqual(pair.cordoned(), [...GUESTS]);
});

test('G7: a guest that is down is not waited for, nor does its wish count', async () => {
  const pair = new Pair();
  const wish = config(BROKER, String(OTHER_GUEST), 'twinlog.guest.uncordon', 'true');
  pair.cluster.commit(wish);
  pair.cluster.fence(OTHER_GUEST, true);
  await pair.of(GUEST).pass();
  assert.deepEqual(pair.cordoned(), [...GUESTS]);
  assert.equal(await pair.of(GUEST).whileLifted(async () => 'done'), 'done');
  assert.deepEqual(pair.said, []);
  pair.cluster.fence(OTHER_GUEST, false);
  await pair.of(GUEST).pass();
  assert.deepEqual(pair.cordoned(), [OTHER_GUEST]);
  await pair.of(OTHER_GUEST).pass();
  await pair.of(GUEST).pass();
  assert.deepEqual(pair.said, [`${OTHER_GUEST} null`], 'what is left from before a crash');
  assert.deepEqual(pair.cordoned(), [...GUESTS]);
});

test('G7: without a controller the action is tried, and fails by itself', async () => {
  const pair = new Pair();
  pair.unreachable = true;
  const refused = pair.of(GUEST).whileLifted(() => Promise.reject(new RangeError('no')));
  refused.catch(() => undefined);
  await look(pair);
  pair.cluster.runtime.clock.advance(10_000);
  await look(pair);
  for (let i = 0; i < 600; i++) await look(pair);
  await assert.rejects(refused, RangeError);
});

test('G18: while maintenance is on an administrator may name every guest', async () => {
  const pair = new Pair();
  const flag = (value: string | null) =>
    config(BROKER, String(GUEST), 'twinlog.guest.maintenance', value);
  pair.cluster.commit(flag('true'));
  await pair.passes();
  assert.deepEqual(pair.cordoned(), []);
  pair.cluster.commit(flag(null));
  await pair.passes();
  assert.deepEqual(pair.cordoned(), [...GUESTS]);
  assert.deepEqual(pair.said, []);
});
