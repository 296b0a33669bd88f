/** Which logs are copies of a source's, that neither retention nor compaction may touch. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type MetadataImage, metadataImage } from '../../src/metadata/image.ts';
import type { MetadataDelta } from '../../src/metadata/image-delta.ts';
import { MirrorPartitionStates } from '../../src/mirror/partition-states.ts';
import { MIRROR_STATE_TOPIC } from '../../src/mirror/state-row.ts';
import { imageWith } from './harness.ts';

/** The topic of the harness's image stands for any: partition 0 is led by broker 1. */
const TOPIC = MIRROR_STATE_TOPIC;
const LEADER = 1;
const FOLLOWER = 2;

function statesWith(removed: boolean | undefined): MirrorPartitionStates {
  const base = imageWith(['m']);
  const memberships =
    removed === undefined ? new Map() : new Map([[TOPIC, { mirror: 'm', removed, offset: 5 }]]);
  const image: MetadataImage = metadataImage({ ...base, memberships });
  const states = new MirrorPartitionStates();
  states.publish({ image } as MetadataDelta);
  return states;
}

const id = imageWith([]).topicsByName.get(TOPIC)?.id ?? assert.fail();

test('F5 F8: a log is a copy while it is mirrored, in every state but STOPPED', () => {
  const states = statesWith(false);
  assert.equal(states.isCopy(id, TOPIC, 0, LEADER), true, 'UNKNOWN');
  for (const state of ['PREPARING', 'MIRRORING', 'STOPPING', 'FAILED', 'PAUSED'] as const) {
    states.set(id, 0, 'm', state);
    assert.equal(states.isCopy(id, TOPIC, 0, LEADER), true, state);
  }
  states.set(id, 0, 'm', 'STOPPED');
  assert.equal(states.isCopy(id, TOPIC, 0, LEADER), false);
  assert.equal(states.isCopy(id, TOPIC, 1, FOLLOWER), true, 'a follower knows no state');
});

test('F5 F8: once removed, the leader waits for STOPPED and a follower for nothing', () => {
  const states = statesWith(true);
  assert.equal(states.isCopy(id, TOPIC, 0, LEADER), true);
  assert.equal(states.isCopy(id, TOPIC, 0, FOLLOWER), false);
  states.set(id, 0, 'm', 'STOPPED');
  assert.equal(states.isCopy(id, TOPIC, 0, LEADER), false);
});

test('F5 F8: other topics are none, and before the first image every one may be', () => {
  assert.equal(statesWith(undefined).isCopy(id, TOPIC, 0, LEADER), false);
  assert.equal(new MirrorPartitionStates().isCopy(id, TOPIC, 0, LEADER), true);
});
