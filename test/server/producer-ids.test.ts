/** Producer ids: blocks from the controller, shared refills, errors. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { ProducerIdBlock } from '../../src/metadata/controller-port.ts';
import { errors } from '../../src/protocol/errors.ts';
import { ProducerIds } from '../../src/server/producer-ids.ts';
import { fakeController } from './fakes.ts';

function setup(answers: ProducerIdBlock[]) {
  const asked: [number, number][] = [];
  const controller = fakeController({
    allocateProducerIds: (...who) => {
      asked.push(who);
      return Promise.resolve(answers.shift() as ProducerIdBlock);
    },
  });
  return { asked, ids: new ProducerIds(controller, () => ({ id: 4, epoch: 9 })) };
}

test('P4: concurrent callers share a block, a used-up one is followed by the next', async () => {
  const { ids, asked } = setup([
    { error: 0, firstProducerId: 1000n, length: 3 },
    { error: 0, firstProducerId: 7000n, length: 2 },
  ]);
  const results = await Promise.all(Array.from({ length: 5 }, () => ids.next()));
  const given = results.map((result) => ('producerId' in result ? result.producerId : undefined));
  assert.deepEqual(given, [1000n, 1001n, 1002n, 7000n, 7001n]);
  assert.deepEqual(asked, [
    [4, 9],
    [4, 9],
  ]);
});

test('an error goes to all that waited; the next call asks again', async () => {
  const error = errors.COORDINATOR_LOAD_IN_PROGRESS.code;
  const { ids, asked } = setup([{ error }, { error: 0, firstProducerId: 0n, length: 1 }]);
  assert.deepEqual(await Promise.all([ids.next(), ids.next()]), [{ error }, { error }]);
  assert.deepEqual(await ids.next(), { producerId: 0n });
  assert.equal(asked.length, 2);
});
