/**
 * Broker registration, fencing, unfencing and stopping, and what they do to leaders and epochs.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import {
  decideBrokerRegistration,
  decideFence,
  decideHeartbeat,
} from '../../src/metadata/decide-brokers.ts';
import type { MetadataImage, PartitionRegistration } from '../../src/metadata/image.ts';
import { errorName } from '../../src/protocol/errors.ts';
import {
  broker,
  contextOf,
  feature,
  heartbeat,
  id,
  imageOf,
  registration,
  topic,
} from './harness.ts';

const image = imageOf([
  feature('metadata.version', 29),
  feature('mirror.version', 1),
  broker(1),
  broker(2),
  broker(3, { fenced: true }),
  ...topic('alone', id(1), [1]),
  ...topic('both', id(2), [1, 2], [2, 1]),
]);

function partition(on: MetadataImage, name: string, index = 0): PartitionRegistration {
  const found = on.topicsByName.get(name)?.partitions.get(index);
  assert.ok(found);
  return found;
}

function brief(p: PartitionRegistration) {
  const { leader, leaderEpoch, partitionEpoch, isr } = p;
  return { leader, leaderEpoch, partitionEpoch, isr };
}

function register(
  wish: Parameters<typeof registration>[2],
  { on = image, brokerId = 1, incarnation = 7, hasSession = false } = {},
) {
  const request = registration(brokerId, incarnation, wish);
  const { records, response } = decideBrokerRegistration(contextOf(on), request, hasSession);
  return { records, response, error: errorName(response.errorCode), after: imageOf(records, on) };
}

describe('decideBrokerRegistration', () => {
  const refused: [wish: Parameters<typeof registration>[2], error: string][] = [
    [{ clusterId: 'another' }, 'INCONSISTENT_CLUSTER_ID'],
    [{ listeners: [] }, 'INVALID_REGISTRATION'],
    [{ logDirs: [] }, 'INVALID_REGISTRATION'],
    [{ logDirs: [id(2002)] }, 'INVALID_REGISTRATION'],
    [{ incarnationId: ZERO_UUID }, 'INVALID_REGISTRATION'],
    [{ isMigratingZkBroker: true }, 'INVALID_REGISTRATION'],
    [{ features: [] }, 'UNSUPPORTED_VERSION'],
    [
      { features: [{ name: 'metadata.version', minSupportedVersion: 7, maxSupportedVersion: 33 }] },
      'UNSUPPORTED_VERSION',
    ],
  ];
  for (const [wish, error] of refused) {
    it(`refuses ${JSON.stringify(wish)} with ${error}`, () => {
      const refusal = register(wish);
      assert.equal(refusal.error, error);
      assert.equal(refusal.response.brokerEpoch, -1);
      assert.deepEqual(refusal.records, []);
    });
  }

  it('registers a new broker fenced, its epoch being the metadata offset', () => {
    const { after, response } = register({ rack: 'r' }, { brokerId: 9 });
    assert.equal(response.brokerEpoch, image.offset + 1);
    assert.deepEqual(after.brokers.get(9), {
      id: 9,
      epoch: image.offset + 1,
      incarnationId: id(7),
      rack: 'r',
      fenced: true,
      inControlledShutdown: false,
      listeners: [{ name: 'PLAINTEXT', host: 'localhost', port: 9092, securityProtocol: 0 }],
      features: registration(9, 7).features,
      logDirs: [id(2009)],
      cordonedLogDirs: [],
    });
  });

  it('G4: the same incarnation amends in place: epoch, fencing and leadership stay', () => {
    const listeners = [{ name: 'PLAINTEXT', host: 'h', port: 1, securityProtocol: 0 }];
    const { after, response } = register({ listeners }, { incarnation: 1001, hasSession: true });
    assert.equal(response.brokerEpoch, 101);
    assert.equal(after.brokers.get(1)?.fenced, false);
    assert.deepEqual(after.brokers.get(1)?.listeners, listeners);
    assert.equal(partition(after, 'alone'), partition(image, 'alone'));
  });

  it('refuses another incarnation while the registered one may be alive', () => {
    assert.equal(register({}, { hasSession: true }).error, 'DUPLICATE_BROKER_REGISTRATION');
  });

  it('takes leaderships from the old incarnation; an only replica stays in the ISR', () => {
    const { after } = register({});
    assert.equal(after.brokers.get(1)?.fenced, true);
    assert.deepEqual(brief(partition(after, 'alone')), {
      leader: -1,
      leaderEpoch: 1,
      partitionEpoch: 1,
      isr: [1],
    });
    assert.deepEqual(brief(partition(after, 'both', 0)), {
      leader: 2,
      leaderEpoch: 1,
      partitionEpoch: 1,
      isr: [2],
    });
    assert.deepEqual(brief(partition(after, 'both', 1)), {
      leader: 2,
      leaderEpoch: 0,
      partitionEpoch: 1,
      isr: [2],
    });
  });
});

describe('decideHeartbeat', () => {
  const NO_STATE = { shutdownOffset: undefined, othersOffset: -1 };
  const beat = (
    on: MetadataImage,
    request: ReturnType<typeof heartbeat>,
    state: Parameters<typeof decideHeartbeat>[2] = NO_STATE,
  ) => {
    const { records, response } = decideHeartbeat(contextOf(on), request, state);
    return { records, response, after: imageOf(records, on) };
  };

  it('refuses unknown brokers and stale epochs', () => {
    assert.equal(
      errorName(beat(image, heartbeat(8, 1)).response.errorCode),
      'BROKER_ID_NOT_REGISTERED',
    );
    assert.equal(errorName(beat(image, heartbeat(1, 7)).response.errorCode), 'STALE_BROKER_EPOCH');
  });

  it('changes nothing for a broker that goes on', () => {
    const { records, response } = beat(image, heartbeat(1, 101));
    assert.deepEqual(records, []);
    assert.deepEqual([response.isCaughtUp, response.isFenced], [true, false]);
  });

  it('unfences only a broker that wants it and has seen its own registration', () => {
    const behind = beat(image, heartbeat(3, 103, { currentMetadataOffset: 102 }));
    assert.deepEqual([behind.records, behind.response.isCaughtUp], [[], false]);
    assert.deepEqual(beat(image, heartbeat(3, 103, { wantFence: true })).records, []);
    const { after, response } = beat(image, heartbeat(3, 103, { currentMetadataOffset: 103 }));
    assert.equal(response.isFenced, false);
    assert.equal(after.brokers.get(3)?.fenced, false);
  });

  it('elects a restarted broker again: two leader epochs per restart of the only replica', () => {
    const restarted = register({}).after;
    const epoch = restarted.brokers.get(1)?.epoch ?? -1;
    const { after } = beat(restarted, heartbeat(1, epoch));
    assert.deepEqual(brief(partition(after, 'alone')), {
      leader: 1,
      leaderEpoch: 2,
      partitionEpoch: 2,
      isr: [1],
    });
    assert.equal(partition(after, 'both').leader, 2);
    assert.deepEqual(partition(after, 'both').isr, [2]);
  });

  it('fences a broker that asks for it', () => {
    const { after, response } = beat(image, heartbeat(1, 101, { wantFence: true }));
    assert.equal(response.isFenced, true);
    assert.equal(after.brokers.get(1)?.fenced, true);
    assert.equal(partition(after, 'alone').leader, -1);
  });

  it('lets a broker stop when it leads nothing and the others know', () => {
    const stop = heartbeat(1, 101, { wantShutDown: true });
    const first = beat(image, stop);
    assert.equal(first.response.shouldShutDown, false);
    assert.equal(first.after.brokers.get(1)?.inControlledShutdown, true);
    assert.equal(partition(first.after, 'alone').leader, -1);
    assert.equal(partition(first.after, 'both').leader, 2);
    const unknown = beat(first.after, stop, { shutdownOffset: 50, othersOffset: 49 });
    assert.deepEqual([unknown.records, unknown.response.shouldShutDown], [[], false]);
    const last = beat(first.after, stop, { shutdownOffset: 50, othersOffset: 50 });
    assert.equal(last.response.shouldShutDown, true);
    assert.equal(last.after.brokers.get(1)?.fenced, true);
    assert.equal(beat(last.after, stop).response.shouldShutDown, true);
  });

  it('gives a leaderless partition to no broker outside its ISR', () => {
    const fenced = imageOf(decideFence(image, 1), image);
    const both = imageOf(decideFence(fenced, 2), fenced);
    assert.deepEqual(brief(partition(both, 'both')), {
      leader: -1,
      leaderEpoch: 2,
      partitionEpoch: 2,
      isr: [2],
    });
    const { after } = beat(both, heartbeat(1, 101));
    assert.equal(partition(after, 'alone').leader, 1);
    assert.equal(partition(after, 'both').leader, -1);
    assert.equal(partition(after, 'both').partitionEpoch, 2);
  });
});

describe('decideFence', () => {
  it('does nothing to a fenced or unknown broker', () => {
    assert.deepEqual(decideFence(image, 3), []);
    assert.deepEqual(decideFence(image, 9), []);
  });
});
