/** A broker in its cluster: registration, heartbeats until unfenced, controlled shutdown. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { errors } from '../../src/protocol/errors.ts';
import type { BrokerHeartbeatRequest } from '../../src/protocol/messages/63-broker-heartbeat.ts';
import { BrokerRegistration, HEARTBEAT_INTERVAL_MS } from '../../src/server/broker-registration.ts';
import { fakeController, fakeRuntime, ManualClock, settle, uuidOf } from './fakes.ts';

type Heard = { errorCode?: number; isFenced?: boolean; shouldShutDown?: boolean } | Error;

function setup(heard: Heard[], registrationError = 0) {
  const sent: BrokerHeartbeatRequest[] = [];
  const controller = fakeController({
    registerBroker: ({ listeners }) => {
      assert.deepEqual(listeners, [{ name: 'PLAINTEXT', host: 'h', port: 9, securityProtocol: 0 }]);
      const response = { throttleTimeMs: 0, errorCode: registrationError, brokerEpoch: 44 };
      return Promise.resolve(response);
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
  });
  return { registration, clock, sent };
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
