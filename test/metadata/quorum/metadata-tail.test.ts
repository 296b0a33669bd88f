/**
 * The end of the metadata log: what is given out when, and what may be dropped again.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { MalformedBytes } from '../../../src/base/bytes.ts';
import { LostMetadata, MetadataTail } from '../../../src/metadata/quorum/metadata-tail.ts';
import { metadataBatch, NO_COMPRESSION, named } from './fake-quorum.ts';

/** What batches hold: their last offsets, epochs and the names of their configs. */
function summary(batches: ReturnType<MetadataTail['commit']>) {
  return batches.map(({ records, lastOffset, epoch }) => [lastOffset, epoch, named(records)]);
}

const tail = (fromOffset = 0): MetadataTail => new MetadataTail(NO_COMPRESSION, fromOffset);

describe('MetadataTail', () => {
  it('G1: gives out what lies below the high watermark, whole batches, once', () => {
    const log = tail();
    log.append(Buffer.concat([metadataBatch(0, 1, ['a', 'b']), metadataBatch(2, 1, ['c'])]));
    assert.deepEqual([log.nextOffset, log.lastEpoch, log.highWatermark], [3, 1, -1]);
    assert.deepEqual(summary(log.commit(-1)), []);
    assert.deepEqual(summary(log.commit(1)), []);
    assert.deepEqual(summary(log.commit(2)), [[1, 1, ['a', 'b']]]);
    // A new leader may not know the watermark yet.
    assert.deepEqual(summary(log.commit(-1)), []);
    assert.equal(log.highWatermark, 2);
    log.append(metadataBatch(3, 2, ['d']));
    assert.deepEqual(summary(log.commit(9)), [
      [2, 1, ['c']],
      [3, 2, ['d']],
    ]);
    assert.equal(log.committedOffset, 4);
  });

  it('G2: control batches move offset and epoch and hold nothing', () => {
    const log = tail();
    log.append(Buffer.concat([metadataBatch(0, 1, 'control'), metadataBatch(1, 1, ['a'])]));
    assert.deepEqual(summary(log.commit(2)), [
      [0, 1, []],
      [1, 1, ['a']],
    ]);
  });

  it('G1: a batch that is cut off waits for the next fetch, but not a first one', () => {
    const [one, two] = [metadataBatch(0, 1, ['a']), metadataBatch(1, 1, ['b'])];
    const log = tail();
    log.append(Buffer.concat([one, two.subarray(0, two.length - 3)]));
    assert.equal(log.nextOffset, 1);
    log.append(two);
    assert.deepEqual(summary(log.commit(2)), [
      [0, 1, ['a']],
      [1, 1, ['b']],
    ]);
    assert.throws(() => tail().append(two.subarray(0, 30)), MalformedBytes);
  });

  it('skips what it has, also inside a batch, and refuses gaps and damage', () => {
    const log = tail(1);
    log.append(metadataBatch(0, 1, ['a', 'b', 'c']));
    assert.deepEqual(summary(log.commit(3)), [[2, 1, ['b', 'c']]]);
    log.append(metadataBatch(0, 1, ['a', 'b', 'c']));
    assert.equal(log.nextOffset, 3);
    assert.throws(() => log.append(metadataBatch(4, 1, ['e'])), /at 4 instead of 3/);
    const damaged = metadataBatch(3, 1, ['d']);
    damaged[damaged.length - 1] = 0x55;
    assert.throws(() => log.append(damaged), /CRC/);
  });

  it('G1: drops the tail that a new leader does not have, never what was given out', () => {
    const log = tail();
    log.append(metadataBatch(0, 1, ['a']));
    log.append(metadataBatch(1, 1, ['b']));
    log.append(metadataBatch(2, 2, ['c']));
    log.append(metadataBatch(3, 2, ['d']));
    assert.deepEqual(summary(log.commit(1)), [[0, 1, ['a']]]);
    // Epoch 2 never reached the new leader; of epoch 1 it has all.
    assert.equal(log.truncate(1, 2), 2);
    assert.deepEqual([log.nextOffset, log.lastEpoch], [2, 1]);
    assert.equal(log.truncate(1, 1), 1);
    assert.deepEqual([log.nextOffset, log.lastEpoch], [1, 1]);
    log.append(metadataBatch(1, 3, ['e']));
    assert.deepEqual(summary(log.commit(2)), [[1, 3, ['e']]]);
    assert.throws(() => log.truncate(3, 1), LostMetadata);
    assert.throws(() => log.truncate(1, 1), LostMetadata);
  });

  it('an answer that drops nothing ends it, as it would come for ever', () => {
    const log = tail();
    log.append(metadataBatch(0, 1, ['a']));
    assert.throws(() => log.truncate(1, 1), LostMetadata);
  });

  it('G1: goes on behind a snapshot', () => {
    const log = tail();
    log.append(metadataBatch(0, 1, ['a']));
    log.restart(50, 4);
    assert.deepEqual([log.nextOffset, log.lastEpoch, log.committedOffset], [50, 4, 50]);
    log.append(metadataBatch(50, 4, ['z']));
    assert.deepEqual(summary(log.commit(51)), [[50, 4, ['z']]]);
    assert.throws(() => log.restart(50, 4), LostMetadata);
  });
});
