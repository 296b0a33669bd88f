/**
 * Rows in memory: fed by the tail and by the guest's own commits, in whatever order these come.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Uuid } from '../../../src/base/uuid.ts';
import { lastMirroredOffsetIn } from '../../../src/guest/state/peer-rows.ts';
import { StateRows } from '../../../src/guest/state/state-rows.ts';
import {
  encodeRow,
  encodeRowKey,
  type MirrorStateRow,
  rowKeyText,
} from '../../../src/mirror/state-row.ts';
import { row } from '../../mirror/harness.ts';

const ID = 'dG9waWMtdG9waWMtdG9waQ' as Uuid;
const OTHER_ID = 'b3RoZXItb3RoZXItb3RoZQ' as Uuid;
const KEY = { mirror: 'm', topicId: ID, partition: 0 };

function at(offset: number, value: MirrorStateRow | null, writer = 1, partition = 0) {
  return {
    at: { partition, offset },
    key: encodeRowKey(KEY),
    value: value === null ? null : encodeRow(value),
    writer,
  };
}

test('G22: what is met again never takes a row back', () => {
  const rows = new StateRows();
  const [first, second] = [row('PREPARING'), row('MIRRORING', { stateEpoch: 2 })];
  assert.deepEqual(rows.apply(at(10, first)), []);
  assert.deepEqual(rows.apply(at(20, second)), []);
  assert.equal(rows.apply(at(10, first)), undefined);
  assert.equal(rows.apply(at(20, second)), undefined);
  assert.deepEqual(rows.shard.row(KEY), second);
  assert.deepEqual(rows.apply(at(30, null)), []);
  assert.equal(rows.apply(at(20, second)), undefined);
  assert.equal(rows.shard.row(KEY), undefined);
  // The tail passes the deletion; what comes then is new.
  assert.equal(rows.apply(at(30, null)), undefined);
  assert.deepEqual(rows.apply(at(31, first, 2)), []);
  assert.deepEqual(rows.shard.row(KEY), first);
  assert.equal(rows.writerOf(rowKeyText(KEY)), 2);
});

test('G22: a log that was lost is read again, its rows staying meanwhile', () => {
  const rows = new StateRows();
  rows.apply(at(10, row('PREPARING')));
  rows.forgetPlaces(1);
  assert.equal(rows.apply(at(3, row('STOPPED'))), undefined);
  rows.forgetPlaces(0);
  assert.deepEqual(rows.shard.row(KEY), row('PREPARING'));
  assert.deepEqual(rows.apply(at(3, row('STOPPED'))), []);
  assert.deepEqual(rows.shard.row(KEY), row('STOPPED'));
});

test('G22: a record type of a later version is passed over', () => {
  const rows = new StateRows();
  const key = encodeRowKey(KEY);
  key[1] = 9;
  assert.equal(rows.apply({ ...at(1, row('PREPARING')), key }), undefined);
  assert.deepEqual(rows.shard.rows(), []);
});

test('G22: the newest ended episode of the topic of that id, mirrored from here, counts', () => {
  const keyed = (fields: Partial<MirrorStateRow>, topicId = ID, mirror = 'm', partition = 0) => ({
    key: { mirror, topicId, partition },
    row: row('STOPPED', { topicName: 't', sourceClusterId: 'here', ...fields }),
  });
  const rows = [
    keyed({ lastMirroredOffset: 5, membershipOffset: 10 }),
    keyed({ lastMirroredOffset: 7, membershipOffset: 30 }, ID, 'second'),
    keyed({ lastMirroredOffset: 6, membershipOffset: 20 }, ID, 'third'),
    keyed({ lastMirroredOffset: 99, membershipOffset: 40, sourceClusterId: 'x' }, ID, 'fourth'),
    keyed({ lastMirroredOffset: 98, membershipOffset: 50, state: 1 }, ID, 'fifth'),
    keyed({ lastMirroredOffset: -1, membershipOffset: 60 }, ID, 'sixth'),
    keyed({ lastMirroredOffset: 97, membershipOffset: 70 }, OTHER_ID),
    keyed({ lastMirroredOffset: 96, membershipOffset: 80 }, ID, 'm', 1),
    keyed({ lastMirroredOffset: 95, membershipOffset: 90, topicName: 'u' }, ID, 'seventh'),
  ];
  const found = (name: string, id: Uuid, partition: number) =>
    lastMirroredOffsetIn(rows, { name, id }, partition, 'here');
  assert.equal(found('t', ID, 0), 7);
  assert.equal(found('t', OTHER_ID, 0), 97);
  assert.equal(found('t', ID, 1), 96);
  assert.equal(found('t', ID, 2), 'none');
  const settling = { lastMirroredOffset: 8, membershipOffset: 99, state: 2 };
  rows.push(keyed(settling, ID, 'eighth'));
  assert.equal(found('t', ID, 0), 7);
  rows.push(keyed({ ...settling, settled: true }, ID, 'ninth'));
  assert.equal(found('t', ID, 0), 8);
});
