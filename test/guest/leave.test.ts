/**
 * Which guests may leave, what is said to the others, and the order in which one is forgotten (G6).
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { JobController } from '../../src/guest/jobs/job-ports.ts';
import { type LeavePlan, leave, planLeave } from '../../src/guest/leave.ts';
import { ConfigResourceType } from '../../src/metadata/image.ts';
import { ApiKey } from '../../src/protocol/api-keys.ts';
import { broker, config, id, imageOf, topic } from '../metadata/harness.ts';

const GUEST = 201;
const { BROKER } = ConfigResourceType;
const flag = config(BROKER, String(GUEST), 'twinlog.guest', 'true');
const maintenance = config(BROKER, String(GUEST), 'twinlog.guest.maintenance', 'true');
const other = config(BROKER, String(GUEST), 'log.cleaner.threads', '2');
const stopped = broker(GUEST, { fenced: true });

function plan(records: Parameters<typeof imageOf>[0], mirrored: readonly string[] = []) {
  return planLeave(imageOf([broker(1), ...records]), GUEST, (name) => mirrored.includes(name));
}

function why(made: LeavePlan): string {
  assert.equal(made.kind, 'refused');
  return made.kind === 'refused' ? made.why : '';
}

test('G6: a stopped guest that holds nothing leaves, with all that is its own', () => {
  const made = plan([stopped, flag, maintenance, other]);
  assert.equal(made.kind, 'leave');
  assert.deepEqual(made.kind === 'leave' && made.configs, [
    'twinlog.guest',
    'twinlog.guest.maintenance',
  ]);
});

test('nobody is nothing to do', () => {
  assert.deepEqual(plan([]), { kind: 'gone' });
});

test('G6: one that runs is told to stop, one that is no guest is left alone', () => {
  assert.match(why(plan([broker(GUEST), flag])), /Guest 201 is running\. Stop it first/);
  assert.match(why(plan([stopped])), /does not say that it is a guest.*--unmarked/s);
  const image = imageOf([stopped]);
  assert.equal(planLeave(image, GUEST, () => false, true).kind, 'leave');
});

test('what was left of a guest that somebody else unregistered is named', () => {
  assert.match(why(plan([flag])), /settings \(twinlog\.guest\) still say/);
});

test('partitions keep it: mirrored ones and strays differ in what to do', () => {
  const held = [...topic('m', id(1), [GUEST, 1]), ...topic('s', id(2), [1, GUEST], [1])];
  const made = plan([stopped, flag, ...held], ['m']);
  assert.match(why(made), /Mirrored: m\. Start it, and fail them over/);
  assert.match(why(made), /Not mirrored: s\. A running guest moves them off/);
  assert.deepEqual(made.kind === 'refused' && made.partitions, ['m-0', 's-0']);
});

/** A controller that answers this error to one API. */
function controller(trace: number[], errorCode: number, failing: number): JobController {
  const send: JobController['send'] = async (request) => {
    trace.push(request.apiKey ?? -1);
    const code = request.apiKey === failing ? errorCode : 0;
    const answer = { errorCode: code, errorMessage: 'as told' };
    return { ...answer, responses: [answer] } as never;
  };
  return { send };
}

test('settings go before the registration, which is not touched if they stay', async () => {
  const { IncrementalAlterConfigs, UnregisterBroker } = ApiKey;
  const made = plan([stopped, flag]);
  assert.ok(made.kind === 'leave');
  const whole: number[] = [];
  assert.equal(await leave(controller(whole, 0, 0), GUEST, made), undefined);
  assert.deepEqual(whole, [IncrementalAlterConfigs, UnregisterBroker]);
  const cut: number[] = [];
  const refused = await leave(controller(cut, 31, IncrementalAlterConfigs), GUEST, made);
  assert.match(String(refused), /settings of broker 201 cannot be removed: CLUSTER_AUTHORIZ/);
  assert.deepEqual(cut, [IncrementalAlterConfigs]);
  const gone = controller([], 102, UnregisterBroker);
  assert.equal(await leave(gone, GUEST, made), undefined, 'somebody else was quicker');
  const denied = await leave(controller([], 31, UnregisterBroker), GUEST, made);
  assert.match(String(denied), /cannot be unregistered: CLUSTER_AUTHORIZATION_FAILED as told/);
});
