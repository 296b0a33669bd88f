/** A broker in its cluster: registration, heartbeats until unfenced, controlled shutdown. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ControllerPort } from '../../src/metadata/controller-port.ts';
import { guestSupportedFeatures } from '../../src/metadata/features.ts';
import { QuorumUnavailable } from '../../src/metadata/quorum/quorum-client.ts';
import { errors } from '../../src/protocol/errors.ts';
import type { BrokerHeartbeatRequest } from '../../src/protocol/messages/63-broker-heartbeat.ts';
import {
  BrokerRegistration,
  DUPLICATE_PATIENCE_MS,
  HEARTBEAT_INTERVAL_MS,
  type RegistrationOptions,
} from '../../src/server/broker-registration.ts';
import { fakeController, fakeRuntime, ManualClock, settle, uuidOf } from './fakes.ts';

type Heard = { errorCode?: number; isFenced?: boolean; shouldShutDown?: boolean } | Error;

function setup(
  heard: Heard[],
  registrationErrors: number | number[] = 0,
  wish: Partial<RegistrationOptions> = {},
) {
  const sent: BrokerHeartbeatRequest[] = [];
  const registered: Parameters<ControllerPort['registerBroker']>[0][] = [];
  const refusals = typeof registrationErrors === 'number' ? undefined : registrationErrors;
  const controller = fakeController({
    registerBroker: (request) => {
      assert.deepEqual(request.listeners[0], {
        name: 'PLAINTEXT',
        host: 'h',
        port: 9,
        securityProtocol: 0,
      });
      registered.push(request);
      const errorCode =
        refusals === undefined ? Number(registrationErrors) : (refusals.shift() ?? 0);
      const brokerEpoch = 43 + registered.length;
      return Promise.resolve({ throttleTimeMs: 0, errorCode, brokerEpoch });
    },
    brokerHeartbeat: (request) => {
      sent.push(request);
      const answer = heard.shift() ?? {};
      if (answer instanceof Error) return Promise.reject(answer);
      const calm = { errorCode: 0, isCaughtUp: true, isFenced: false, shouldShutDown: false };
      return Promise.resolve({ throttleTimeMs: 0, ...calm, ...answer });
    },
  });
  const clock = new ManualClock();
  const registration = new BrokerRegistration(fakeRuntime(clock), controller, {
    brokerId: 3,
    clusterId: 'c',
    incarnationId: uuidOf(1),
    directoryId: uuidOf(2),
    rack: null,
    listeners: [{ name: 'PLAINTEXT', host: 'h', port: 9 }],
    appliedOffset: () => 70 + sent.length,
    ...wish,
  });
  return { registration, clock, sent, registered };
}

test('a refused registration says who refuses whom and why', async () => {
  const { registration } = setup([], errors.DUPLICATE_BROKER_REGISTRATION.code);
  await assert.rejects(registration.register(), /broker 3: DUPLICATE_BROKER_REGISTRATION/);
  assert.equal(registration.epoch, -1);
});

test('heartbeats come fast until unfenced, then slowly, whatever one of them meets', async () => {
  const { registration, clock, sent } = setup([
    { isFenced: true },
    { errorCode: errors.REQUEST_TIMED_OUT.code },
    {},
    new Error('no answer'),
    {},
  ]);
  await registration.register();
  const unfenced = registration.unfence();
  await clock.advance(HEARTBEAT_INTERVAL_MS / 2);
  await unfenced;
  assert.equal(sent.length, 3);
  await clock.advance(2 * HEARTBEAT_INTERVAL_MS);
  assert.deepEqual(
    sent.map(({ brokerEpoch, currentMetadataOffset }) => [brokerEpoch, currentMetadataOffset]),
    [70, 71, 72, 73, 74].map((offset) => [44, offset]),
  );
});

test('leaving asks until let go, then no heartbeat follows', async () => {
  const { registration, clock, sent } = setup([{}, {}, { shouldShutDown: true }]);
  await registration.register();
  await registration.unfence();
  const left = registration.leave();
  await clock.advance(10 * HEARTBEAT_INTERVAL_MS);
  await left;
  assert.deepEqual(
    sent.map(({ wantShutDown }) => wantShutDown),
    [false, true, true],
  );
  assert.equal(clock.pendingTimers, 0);
});

test('a controller that is gone, or never lets go, does not hold a stopping broker', async () => {
  const gone = setup([new Error('closed')]);
  await gone.registration.leave();
  assert.equal(gone.sent.length, 1);
  const silent = setup([]);
  const left = silent.registration.leave();
  await silent.clock.advance(60_000);
  await settle();
  await left;
  assert.equal(silent.sent.length, 100);
});

const { DUPLICATE_BROKER_REGISTRATION: DUPLICATE } = errors;

test('G3, G4, G7: a guest registers with features and last epoch, tells its cordon', async () => {
  const epochs: number[] = [];
  let cordoned = [uuidOf(2)];
  const { registration, clock, sent, registered } = setup([], 0, {
    features: guestSupportedFeatures,
    previousBrokerEpoch: 12,
    listeners: [
      { name: 'PLAINTEXT', host: 'h', port: 9 },
      { name: 'CLIENTS', host: 'c', port: 10, securityProtocol: 3 },
    ],
    cordonedLogDirs: () => cordoned,
    onRegistered: (epoch) => {
      assert.equal(registration.epoch, -1);
      epochs.push(epoch);
    },
  });
  await registration.register();
  const [request] = registered;
  assert.equal(request?.previousBrokerEpoch, 12);
  assert.deepEqual(
    request?.features.find(({ name }) => name === 'metadata.version'),
    { name: 'metadata.version', minSupportedVersion: 7, maxSupportedVersion: 33 },
  );
  assert.deepEqual(
    request?.listeners.map(({ name, securityProtocol }) => [name, securityProtocol]),
    [
      ['PLAINTEXT', 0],
      ['CLIENTS', 3],
    ],
  );
  assert.deepEqual(epochs, [44]);
  await registration.unfence();
  cordoned = [];
  await registration.sendHeartbeat();
  assert.deepEqual(
    sent.map(({ cordonedLogDirs }) => cordonedLogDirs),
    [[uuidOf(2)], []],
  );
  registration.close();
  assert.equal(clock.pendingTimers, 0);
});

test('G4: an id held by an earlier incarnation is waited for', async () => {
  const { registration, clock, registered } = setup([], [DUPLICATE.code, DUPLICATE.code, 0], {
    duplicatePatienceMs: DUPLICATE_PATIENCE_MS,
  });
  const done = registration.register();
  await clock.advance(DUPLICATE_PATIENCE_MS / 2);
  await done;
  assert.equal(registered.length, 3);
  assert.equal(registration.epoch, 46);
});

test('G4: an id held by a live one is refused, with what to do', async () => {
  const { registration, clock } = setup([], DUPLICATE.code, {
    duplicatePatienceMs: DUPLICATE_PATIENCE_MS,
  });
  const refused = assert.rejects(registration.register(), /give this one an id of its own/);
  await clock.advance(DUPLICATE_PATIENCE_MS);
  await refused;
});

test('refusals say what they mean', async () => {
  const rows: [error: { readonly code: number }, pattern: RegExp][] = [
    [errors.UNSUPPORTED_VERSION, /metadata\.version 7 to 33, kraft\.version 0 to 1/],
    [errors.INCONSISTENT_CLUSTER_ID, /data directory is of cluster c,/],
    [errors.CLUSTER_AUTHORIZATION_FAILED, /needs CLUSTER_ACTION/],
    [errors.INVALID_REGISTRATION, /that of another broker/],
  ];
  for (const [{ code }, pattern] of rows) {
    const { registration } = setup([], code, { features: guestSupportedFeatures });
    await assert.rejects(registration.register(), pattern);
  }
});

test('a broker epoch that is not known any more is asked for again', async () => {
  const { registration, clock, sent, registered } = setup([
    {},
    { errorCode: errors.STALE_BROKER_EPOCH.code },
    {},
    { errorCode: errors.BROKER_ID_NOT_REGISTERED.code },
    {},
  ]);
  await registration.register();
  await registration.unfence();
  await clock.advance(4 * HEARTBEAT_INTERVAL_MS);
  assert.deepEqual(
    sent.map(({ brokerEpoch }) => brokerEpoch),
    [44, 44, 45, 45, 46],
  );
  assert.deepEqual(new Set(registered.map(({ incarnationId }) => incarnationId)).size, 1);
  registration.close();
});

test('G4 T5: what was led before the start is given up until the broker is unfenced', async () => {
  const { registration, clock, sent } = setup([
    { isFenced: false },
    new QuorumUnavailable('no controller'),
    { isFenced: true },
  ]);
  await registration.register();
  const fenced = registration.fence();
  await clock.advance(1_000);
  await fenced;
  assert.deepEqual(
    sent.map(({ wantFence }) => wantFence),
    [true, true, true],
  );
  await clock.advance(2 * HEARTBEAT_INTERVAL_MS);
  assert.equal(sent.length, 3, 'nothing asks for more before the metadata is known');
  await registration.unfence();
  assert.equal(sent.at(-1)?.wantFence, false);
  registration.close();
});

test('T5: refence fences, then unfences, once for all who come in time', async () => {
  const { registration, clock, sent } = setup([
    {},
    { isFenced: false },
    { isFenced: true },
    { isFenced: true },
    { isFenced: false },
    { isFenced: true },
    { isFenced: false },
  ]);
  await registration.register();
  await registration.unfence();
  const first = registration.refence();
  assert.equal(registration.refence(), first);
  // Two fast turns: not fenced yet, then fenced; the unfencing has begun.
  await clock.advance(60);
  const late = registration.refence();
  assert.notEqual(late, first);
  await clock.advance(1_000);
  await Promise.all([first, late]);
  assert.deepEqual(
    sent.map(({ wantFence }) => wantFence),
    [false, true, true, false, false, true, false],
  );
  await clock.advance(HEARTBEAT_INTERVAL_MS);
  assert.equal(sent.length, 8);
  registration.close();
});

test('T5: a refence that breaks off takes none of the later ones with it', async () => {
  const fenced = { isFenced: true };
  const broken = new Error('unreadable');
  const { registration, clock } = setup([{}, fenced, broken, fenced, {}, fenced, {}]);
  await registration.register();
  await registration.unfence();
  const first = assert.rejects(registration.refence(), broken);
  await clock.advance(10);
  const late = registration.refence();
  await clock.advance(1_000);
  await first;
  await late;
  const next = registration.refence();
  await clock.advance(1_000);
  await next;
  registration.close();
});

test('G5: without a controller a refence goes on trying; a stop ends it', async () => {
  const away = new QuorumUnavailable('no controller');
  const { registration, clock, sent } = setup([{}, away, away, { isFenced: true }, away, {}]);
  await registration.register();
  await registration.unfence();
  const done = registration.refence();
  await clock.advance(1_000);
  await done;
  assert.equal(sent.length, 6);
  const ended = assert.rejects(registration.refence(), /broker 3 is stopping/);
  registration.close();
  await clock.advance(1_000);
  await ended;
  assert.equal(clock.pendingTimers, 0);
});

test('G5: never two heartbeats at once, each with the offset of when it was sent', async () => {
  const { registration, sent } = setup([]);
  await registration.register();
  await Promise.all([1, 2, 3].map(() => registration.sendHeartbeat()));
  assert.deepEqual(
    sent.map(({ currentMetadataOffset }) => currentMetadataOffset),
    [70, 71, 72],
  );
});

test('a controller that does not answer gets no queue of heartbeats', async () => {
  const silent = Promise.withResolvers<never>();
  let asked = 0;
  const controller = fakeController({
    registerBroker: () => Promise.resolve({ throttleTimeMs: 0, errorCode: 0, brokerEpoch: 1 }),
    brokerHeartbeat: () => {
      const calm = { isCaughtUp: true, isFenced: false, shouldShutDown: false };
      asked++;
      if (asked > 1) return silent.promise;
      return Promise.resolve({ throttleTimeMs: 0, errorCode: 0, ...calm });
    },
  });
  const clock = new ManualClock();
  const registration = new BrokerRegistration(fakeRuntime(clock), controller, {
    brokerId: 3,
    clusterId: 'c',
    incarnationId: uuidOf(1),
    directoryId: uuidOf(2),
    rack: null,
    listeners: [],
    appliedOffset: () => 1,
    heartbeatIntervalMs: 500,
  });
  await registration.register();
  await registration.unfence();
  await clock.advance(5_000);
  assert.equal(asked, 2);
  silent.reject(new QuorumUnavailable('none'));
  await clock.advance(500);
  assert.equal(asked, 3);
  registration.close();
});
