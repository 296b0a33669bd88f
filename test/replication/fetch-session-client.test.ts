/** The reader's side of a fetch session. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import { FetchSessionClient } from '../../src/replication/fetch-session-client.ts';
import type { FetchTarget } from '../../src/replication/leader-endpoint.ts';

function target(partition: number, fetchOffset = 0): FetchTarget {
  return {
    topic: 't',
    topicId: ZERO_UUID,
    partition,
    fetchOffset,
    currentLeaderEpoch: 0,
    lastFetchedEpoch: -1,
    logStartOffset: -1,
    maxBytes: 1,
  };
}

function said(client: FetchSessionClient, updated: FetchTarget[], removed: FetchTarget[] = []) {
  const { sessionId, sessionEpoch, partitions, forgotten } = client.next({ updated, removed });
  return [
    sessionId,
    sessionEpoch,
    partitions.map((each) => `${each.partition}@${each.fetchOffset}`),
    forgotten.map((each) => each.partition),
  ];
}

test('asks for all first, then tells changes, epoch by epoch', () => {
  const client = new FetchSessionClient(true);
  assert.deepEqual(said(client, [target(0), target(1)]), [0, 0, ['0@0', '1@0'], []]);
  client.answered(77);
  assert.deepEqual(said(client, [target(1, 5)], [target(0)]), [77, 1, ['1@5'], [0]]);
  client.answered(77);
  assert.deepEqual(said(client, []), [77, 2, [], []]);
  assert.equal(client.target(ZERO_UUID, 't', 1)?.fetchOffset, 5);
  assert.equal(client.target(ZERO_UUID, 't', 0), undefined);
});

test('names everything each time to a leader without sessions, those with data last', () => {
  const client = new FetchSessionClient(true);
  said(client, [target(0), target(1)]);
  client.answered(0);
  assert.deepEqual(said(client, [target(0, 3)]), [0, 0, ['1@0', '0@3'], []]);
});

test('starts over after a lost session', () => {
  const client = new FetchSessionClient(true);
  said(client, [target(0)]);
  client.answered(77);
  said(client, [target(0, 1)]);
  client.reset();
  assert.deepEqual(said(client, [target(1)]), [0, 0, ['0@1', '1@0'], []]);
  client.answered(78);
  assert.deepEqual(said(client, []), [78, 1, [], []]);
});

test('never asks for a session when disabled', () => {
  const client = new FetchSessionClient(false);
  assert.deepEqual(said(client, [target(0)]), [0, -1, ['0@0'], []]);
  client.answered(0);
  assert.deepEqual(said(client, []), [0, -1, ['0@0'], []]);
});
