/**
 * Settings of mirror topics: copied, forced, locked, put back (Y4, G12, G18, G19, G24).
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import {
  copiedOverrides,
  creationConfigs,
  excludedProperties,
  finalBeforeLock,
  finalConfigs,
  forcedChanges,
  isLocked,
  isTiered,
  lockChanges,
  restoreChanges,
  unlockChanges,
} from '../../../src/guest/jobs/topic-settings.ts';
import { ConfigResourceType, emptyImage } from '../../../src/metadata/image.ts';
import { CLUSTER_ID, config, imageOf } from '../../metadata/harness.ts';
import { override } from '../jobs-harness.ts';

const image = emptyImage(CLUSTER_ID);
const NO_FINAL = [
  { name: 'max.message.bytes', value: null },
  { name: 'compression.type', value: null },
  { name: 'unclean.leader.election.enable', value: null },
  { name: 'min.insync.replicas', value: null },
];
const LOCK = { 'max.message.bytes': '78', 'compression.type': 'gzip' };
const FORCED = { 'unclean.leader.election.enable': 'false', 'min.insync.replicas': '1' };

const map = (configs: Readonly<Record<string, string>>) => new Map(Object.entries(configs));
const set = (name: string, value: string) => ({ name, configOperation: 0, value });
const unset = (name: string) => ({ name, configOperation: 1, value: null });

describe('Y4: what is copied from the source', () => {
  const described = [
    override('retention.ms', '1000'),
    override('min.insync.replicas', '2'),
    override('message.timestamp.type', 'LogAppendTime'),
    override('segment.bytes', '99', { configSource: 4 }),
    override('mirror.name', 'other'),
    override('secret', 'x', { isSensitive: true }),
    override('fixed', '1', { readOnly: true }),
  ];

  test('overrides only, without what is excluded; secrets are reported', () => {
    const excluded = excludedProperties(new Map());
    const { overrides, skipped } = copiedOverrides(described, excluded);
    assert.deepEqual([...overrides], [['retention.ms', '1000']]);
    assert.deepEqual(skipped, [{ name: 'secret', reason: 'its value is secret' }]);
  });

  test('the setting replaces the exclusions, but membership is never copied', () => {
    const setting = map({ 'mirror.topic.properties.exclude': 'retention\\..*, secret' });
    const { overrides, skipped } = copiedOverrides(described, excludedProperties(setting));
    assert.deepEqual([...overrides.keys()], ['min.insync.replicas', 'message.timestamp.type']);
    assert.deepEqual(skipped, []);
  });

  test('patterns match whole names', () => {
    const setting = map({ 'mirror.topic.properties.exclude': 'retention' });
    const { overrides } = copiedOverrides(described, excludedProperties(setting));
    assert.equal(overrides.get('retention.ms'), '1000');
  });
});

describe('G12: what a mirror topic is created with', () => {
  test('lock and forced settings, which are gone in the end', () => {
    const final = finalConfigs(image, new Map());
    assert.deepEqual(final, NO_FINAL);
    assert.deepEqual(Object.fromEntries(creationConfigs(final)), { ...LOCK, ...FORCED });
  });

  test('what the source sets is kept for the end where it is forced now', () => {
    const copied = map({
      'min.insync.replicas': '2',
      'max.message.bytes': '5',
      'retention.ms': '7',
    });
    const final = finalConfigs(image, copied);
    assert.deepEqual(
      final.filter(({ value }) => value !== null),
      [
        { name: 'max.message.bytes', value: '5' },
        { name: 'min.insync.replicas', value: '2' },
        { name: 'retention.ms', value: '7' },
      ],
    );
    const created = Object.fromEntries(creationConfigs(final));
    assert.deepEqual(created, { ...LOCK, ...FORCED, 'retention.ms': '7' });
  });

  test('remote storage is switched off only where source or cluster switch it on', () => {
    const fromSource = finalConfigs(image, map({ 'remote.storage.enable': 'true' }));
    assert.equal(creationConfigs(fromSource).get('remote.storage.enable'), 'false');
    const remote = imageOf([
      config(ConfigResourceType.BROKER, '', 'remote.storage.enable', 'true'),
    ]);
    const byCluster = finalConfigs(remote, new Map());
    assert.equal(creationConfigs(byCluster).get('remote.storage.enable'), 'false');
    assert.equal(creationConfigs(NO_FINAL).has('remote.storage.enable'), false);
    const created = creationConfigs(fromSource);
    const back = restoreChanges(created, fromSource);
    assert.deepEqual(back.at(-1), set('remote.storage.enable', 'true'));
    assert.deepEqual(
      restoreChanges(creationConfigs(byCluster), byCluster).at(-1),
      unset('remote.storage.enable'),
    );
  });
});

describe('G19: the lock', () => {
  const final = [
    { name: 'max.message.bytes', value: '5000' },
    { name: 'compression.type', value: null },
  ];

  test('both configs make it', () => {
    assert.equal(isLocked(map(LOCK)), true);
    assert.equal(isLocked(map({ 'max.message.bytes': '78' })), false);
    assert.equal(isLocked(new Map()), false);
  });

  test('lifting puts back what was there; a lifted lock is left alone', () => {
    const changes = [set('max.message.bytes', '5000'), unset('compression.type')];
    assert.deepEqual(unlockChanges(map(LOCK), final), changes);
    assert.deepEqual(unlockChanges(map({ 'max.message.bytes': '5000' }), final), []);
    assert.deepEqual(unlockChanges(map({ ...FORCED, 'compression.type': 'zstd' }), final), []);
  });

  test('setting is repeatable, and remembers what an administrator set meanwhile', () => {
    const now = map({ 'max.message.bytes': '6000' });
    assert.deepEqual(lockChanges(now), [
      set('max.message.bytes', '78'),
      set('compression.type', 'gzip'),
    ]);
    assert.deepEqual(lockChanges(map(LOCK)), []);
    assert.deepEqual(finalBeforeLock(now, final), [
      { name: 'max.message.bytes', value: '6000' },
      { name: 'compression.type', value: null },
    ]);
    assert.equal(finalBeforeLock(map(LOCK), final), final);
    assert.equal(finalBeforeLock(map({ 'max.message.bytes': '5000' }), final), final);
  });
});

describe('G24: the end', () => {
  test('forced and locked settings go back to the final ones', () => {
    const final = [...NO_FINAL.slice(0, 3), { name: 'min.insync.replicas', value: '2' }];
    assert.deepEqual(restoreChanges(map({ ...LOCK, ...FORCED }), final), [
      unset('max.message.bytes'),
      unset('compression.type'),
      unset('unclean.leader.election.enable'),
      set('min.insync.replicas', '2'),
    ]);
  });

  test('repeated, and after an administrator, nothing changes', () => {
    assert.deepEqual(restoreChanges(new Map(), NO_FINAL), []);
    const own = map({ 'min.insync.replicas': '3', 'retention.ms': '1', 'compression.type': 'lz4' });
    assert.deepEqual(restoreChanges(own, NO_FINAL), []);
    const kept = [{ name: 'min.insync.replicas', value: '1' }];
    assert.deepEqual(restoreChanges(map(FORCED), kept), []);
  });
});

describe('G29 G33: a native topic that is taken into a mirror', () => {
  test('what is forced already is not sent again', () => {
    const both = [set('unclean.leader.election.enable', 'false'), set('min.insync.replicas', '1')];
    assert.deepEqual(forcedChanges(map({ 'min.insync.replicas': '2' })), both);
    assert.deepEqual(forcedChanges(map({ 'min.insync.replicas': '1' })), both.slice(0, 1));
    assert.deepEqual(forcedChanges(map(FORCED)), []);
  });

  test('tiered storage is its own setting, or else the cluster default', () => {
    const tiered = imageOf([
      config(ConfigResourceType.BROKER, '', 'remote.storage.enable', 'true'),
    ]);
    const [on, off] = ['true', 'false'].map((value) => map({ 'remote.storage.enable': value }));
    assert.ok(on !== undefined && off !== undefined);
    assert.deepEqual([isTiered(image, map({})), isTiered(tiered, map({}))], [false, true]);
    assert.deepEqual([isTiered(image, on), isTiered(tiered, off)], [true, false]);
  });
});
