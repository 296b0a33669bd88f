/**
 * The loader: what publishers see, and when.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import { Fault } from '../../src/base/assert.ts';
import type { ControllerPort } from '../../src/metadata/controller-port.ts';
import type { MetadataDelta } from '../../src/metadata/image-delta.ts';
import { MetadataLoader } from '../../src/metadata/metadata-loader.ts';
import { metadataRecord } from '../../src/metadata/record-framing.ts';
import { CLUSTER_ID, id, topic } from './harness.ts';

const BEGIN = metadataRecord('BeginTransactionRecord', {});
const END = metadataRecord('EndTransactionRecord', {});
const ABORT = metadataRecord('AbortTransactionRecord', {});

function loaderWithLog() {
  const seen: MetadataDelta[] = [];
  const publisher = { name: 'test', publish: (delta: MetadataDelta) => seen.push(delta) };
  return { loader: new MetadataLoader(CLUSTER_ID, [publisher]), seen };
}

describe('MetadataLoader', () => {
  it('publishes each batch to each publisher in turn, with the image already in place', () => {
    const order: string[] = [];
    const loader: MetadataLoader = new MetadataLoader(
      CLUSTER_ID,
      ['one', 'two'].map((name) => ({
        name,
        publish: (delta: MetadataDelta) => {
          assert.equal(loader.image, delta.image);
          order.push(`${name}@${delta.image.offset}`);
        },
      })),
    );
    loader.replayBatch(topic('a', id(1), [1]), 1, 1);
    loader.replayBatch([], 2, 2);
    assert.deepEqual(order, ['one@1', 'two@1', 'one@2', 'two@2']);
    assert.equal(loader.image.epoch, 2);
  });

  it('holds a metadata transaction back until its end', () => {
    const { loader, seen } = loaderWithLog();
    loader.replayBatch([...topic('a', id(1), [1]), BEGIN, ...topic('b', id(2), [1])], 4, 1);
    loader.replayBatch(topic('c', id(3), [1]), 6, 1);
    assert.deepEqual(seen, []);
    assert.equal(loader.image.offset, -1);
    loader.replayBatch([END], 7, 1);
    assert.deepEqual([...loader.image.topicsByName.keys()], ['a', 'b', 'c']);
    assert.equal(loader.image.offset, 7);
  });

  it('drops an aborted metadata transaction, and nothing else of its batch', () => {
    const { loader } = loaderWithLog();
    const inside = [BEGIN, ...topic('b', id(2), [1]), ABORT];
    loader.replayBatch([...topic('a', id(1), [1]), ...inside, ...topic('c', id(3), [1])], 7, 1);
    assert.deepEqual([...loader.image.topicsByName.keys()], ['a', 'c']);
  });

  it('takes a malformed transaction for a Fault, and a batch that goes back', () => {
    assert.throws(() => loaderWithLog().loader.replayBatch([END], 0, 1), Fault);
    assert.throws(() => loaderWithLog().loader.replayBatch([BEGIN, BEGIN], 1, 1), Fault);
    const { loader } = loaderWithLog();
    loader.replayBatch([], 5, 1);
    assert.throws(() => loader.replayBatch([], 5, 1), Fault);
  });

  it('publishes history as one delta from nothing to now, then batch by batch', async () => {
    const { loader, seen } = loaderWithLog();
    const remove = metadataRecord('RemoveTopicRecord', { topicId: id(1) });
    const controller: Pick<ControllerPort, 'subscribe'> = {
      subscribe: (fromOffset, onBatch) => {
        assert.equal(fromOffset, 0);
        onBatch([], 0, 1);
        onBatch(topic('gone', id(1), [1]), 2, 1);
        onBatch([remove, ...topic('here', id(2), [1])], 5, 1);
        return Promise.resolve();
      },
    };
    await loader.start(controller as ControllerPort);
    loader.replayBatch(topic('new', id(3), [1]), 7, 1);
    const summary = seen.map((d) => [[...d.changedTopics], d.deletedTopics, d.image.offset]);
    assert.deepEqual(summary, [
      [[id(2)], [], 5],
      [[id(3)], [], 7],
    ]);
  });

  it('lets callers wait for an offset', async () => {
    const { loader } = loaderWithLog();
    const reached: number[] = [];
    const waits = [0, 3, 1].map((offset) =>
      loader.waitForOffset(offset).then(() => reached.push(offset)),
    );
    loader.replayBatch(topic('a', id(1), [1]), 1, 1);
    await Promise.all([waits[0], waits[2]]);
    assert.deepEqual(reached, [0, 1]);
    loader.replayBatch([], 3, 1);
    await waits[1];
    await loader.waitForOffset(2);
    assert.deepEqual(reached, [0, 1, 3]);
  });

  it('G1: a snapshot replaces history, and what was open of a metadata transaction', async () => {
    const { loader, seen } = loaderWithLog();
    const controller: Pick<ControllerPort, 'subscribe'> = {
      subscribe: (_fromOffset, onBatch, onSnapshot) => {
        onBatch([...topic('old', id(1), [1]), BEGIN], 4, 1);
        onSnapshot?.(topic('kept', id(2), [1]), 10, 2);
        onBatch(topic('next', id(3), [1]), 12, 2);
        return Promise.resolve();
      },
    };
    await loader.start(controller);
    assert.equal(seen.length, 1);
    assert.deepEqual([...loader.image.topicsByName.keys()], ['kept', 'next']);
    assert.deepEqual([loader.image.offset, loader.image.epoch], [12, 2]);
  });

  it('G1: a snapshot later on is published as the difference', async () => {
    const { loader, seen } = loaderWithLog();
    loader.replayBatch([...topic('a', id(1), [1]), ...topic('b', id(2), [1])], 3, 1);
    loader.replayBatch([BEGIN], 4, 1);
    const reached = loader.waitForOffset(9);
    loader.replaySnapshot([...topic('b', id(2), [1]), ...topic('c', id(3), [1])], 9, 2);
    await reached;
    const last = seen.at(-1);
    assert.deepEqual([...(last?.changedTopics ?? [])], [id(3)]);
    assert.deepEqual(
      last?.deletedTopics.map(({ name }) => name),
      ['a'],
    );
    // The transaction that was open is no more.
    loader.replayBatch(topic('d', id(4), [1]), 11, 2);
    assert.deepEqual([...loader.image.topicsByName.keys()], ['b', 'c', 'd']);
    assert.throws(() => loader.replaySnapshot([], 8, 2), Fault);
  });
});

describe('the overlay of a MetadataLoader', () => {
  const member = (name: string, value: string | null, offset: number) => ({
    record: metadataRecord('ConfigRecord', {
      resourceType: 2,
      resourceName: name,
      name: 'mirror.name',
      value,
    }),
    offset,
  });

  it('G22: is published at once, with its own offset, and leaves the image where it is', () => {
    const { loader, seen } = loaderWithLog();
    loader.replayBatch(topic('a', id(1), [1]), 1, 1);
    loader.overlay([member('a', 'm', 40), member('b', 'm', 41)]);
    assert.equal(seen.length, 2);
    assert.deepEqual(seen[1]?.changedConfigs, [
      { type: 2, name: 'a' },
      { type: 2, name: 'b' },
    ]);
    assert.equal(loader.image.offset, 1);
    assert.deepEqual(loader.image.membership('a'), { mirror: 'm', removed: false, offset: 40 });
    loader.overlay([member('a', null, 42)]);
    assert.equal(loader.image.membership('a'), undefined);
    assert.equal(loader.image.membership('b')?.offset, 41);
  });

  it('G22: given before the start, it lies on the first image', async () => {
    const { loader, seen } = loaderWithLog();
    loader.overlay([member('a', 'm', 7), member('gone', 'm', 8)]);
    assert.deepEqual(seen, []);
    const remove = metadataRecord('RemoveTopicRecord', { topicId: id(2) });
    await loader.start({
      subscribe: (_fromOffset, onBatch) => {
        onBatch([...topic('a', id(1), [1]), ...topic('gone', id(2), [1]), remove], 4, 1);
        return Promise.resolve();
      },
    });
    assert.equal(seen.length, 1);
    assert.equal(loader.image.membership('a')?.offset, 7);
    assert.equal(loader.image.membership('gone')?.offset, 8);
  });

  it('G22: stays when its topic is deleted, so that it is read-only when made again', () => {
    const { loader } = loaderWithLog();
    loader.replayBatch([...topic('a', id(1), [1]), ...topic('b', id(2), [1])], 3, 1);
    loader.overlay([member('a', 'm', 40), member('b', 'm', 41)]);
    const remove = metadataRecord('RemoveTopicRecord', { topicId: id(1) });
    loader.replayBatch([remove, ...topic('a', id(3), [1])], 6, 1);
    assert.equal(loader.image.topicsByName.get('a')?.id, id(3));
    assert.equal(loader.image.membership('a')?.offset, 40);
    loader.replaySnapshot(topic('b', id(2), [1]), 20, 2);
    assert.equal(loader.image.membership('a')?.offset, 40);
    assert.equal(loader.image.membership('b')?.offset, 41);
  });

  it('takes config records only', () => {
    const { loader } = loaderWithLog();
    assert.throws(() => loader.overlay([{ record: END, offset: 1 }]), Fault);
  });
});
