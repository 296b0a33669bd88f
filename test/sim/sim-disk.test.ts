import assert from 'node:assert/strict';
import { test } from 'node:test';
import fc from 'fast-check';
import { seededRandom } from '../../src/base/random.ts';
import { DiskError } from '../../src/io/runtime.ts';
import type { PowerLoss } from '../../src/sim/sim-file.ts';
import { SimWorld } from '../../src/sim/sim-runtime.ts';
import { propertyRuns } from '../property-runs.ts';

const bytes = (text: string): Buffer => Buffer.from(text);
const hasCode = (code: string) => (error: unknown) =>
  error instanceof DiskError && error.code === code;
const LOSE: PowerLoss = { unsynced: 'lose', tornTail: false };

function boot(seed = 1): { world: SimWorld; disk: ReturnType<SimWorld['start']>['disk'] } {
  const world = new SimWorld(seed);
  const { disk } = world.start('m');
  disk.makeDirectory('/d');
  return { world, disk };
}

/** Settles a promise that needs virtual time. */
async function outcome(world: SimWorld, promise: Promise<void>): Promise<unknown> {
  let result: unknown = 'pending';
  promise.then(
    () => {
      result = 'done';
    },
    (error: unknown) => {
      result = error;
    },
  );
  await world.simulator.runFor(100);
  return result;
}

test('a file is written, read, truncated and named as on a real disk', async () => {
  const { world, disk } = boot();
  const file = disk.open('/d/a', 'create');
  file.write([bytes('hello '), bytes(''), bytes('world')], 2);
  assert.equal(await outcome(world, file.sync()), 'done');
  file.truncate(7);
  assert.deepEqual(disk.readFile('/d/a'), new Uint8Array(bytes('\0\0hello')));
  file.truncate(9);
  const target = new Uint8Array(4);
  assert.equal(file.read(target, 6), 3);
  assert.deepEqual([...target], [111, 0, 0, 0]);
  assert.equal(file.read(target, 9), 0);
  file.close();
  assert.throws(() => file.size(), hasCode('EBADF'));
  assert.throws(() => disk.open('/d/b', 'update'), hasCode('ENOENT'));
  assert.throws(() => disk.open('/x/b', 'create'), hasCode('ENOENT'));
  assert.throws(() => disk.open('/d', 'read'), hasCode('EISDIR'));
  assert.throws(() => disk.open('/d/a', 'read').write([bytes('x')], 0), hasCode('EBADF'));
  assert.equal(disk.readFile('/d/b'), undefined);
  assert.equal(disk.list('/none'), undefined);
  disk.makeDirectory('/d/sub/deep');
  disk.rename('/d/a', '/d/sub/c');
  disk.rename('/d/sub', '/e');
  assert.deepEqual(disk.list('/e'), [
    { name: 'c', isDirectory: false },
    { name: 'deep', isDirectory: true },
  ]);
  assert.equal(disk.fileSize('/e/c'), 9);
  disk.remove('/e');
  disk.remove('/e');
  assert.deepEqual([disk.list('/e'), disk.readFile('/e/c')], [undefined, undefined]);
});

test('kill -9 keeps every written byte and name, and frees the lock', () => {
  const { world, disk } = boot();
  assert.ok(disk.lock('/d/.lock'));
  assert.equal(disk.lock('/d/.lock'), undefined);
  const file = disk.open('/d/a', 'create');
  file.write([bytes('unsynced')], 0);
  world.kill('m');
  assert.throws(() => file.write([bytes('x')], 0), hasCode('EIO'));
  assert.throws(() => disk.readFile('/d/a'), hasCode('EIO'));
  const after = world.start('m').disk;
  assert.equal(Buffer.from(after.readFile('/d/a')!).toString(), 'unsynced');
  assert.ok(after.lock('/d/.lock'));
});

test('power loss keeps synced bytes and synced names, and no more', () => {
  const { world, disk } = boot();
  const file = disk.open('/d/a', 'create');
  file.write([bytes('synced')], 0);
  file.syncNow();
  disk.syncDirectory('/');
  disk.syncDirectory('/d');
  file.write([bytes('UNSYNCED')], 3);
  disk.open('/d/unnamed', 'create').syncNow();
  disk.rename('/d/a', '/d/renamed');
  world.losePower('m', LOSE);
  const after = world.start('m').disk;
  assert.deepEqual(
    after.list('/d')?.map(({ name }) => name),
    ['a'],
  );
  assert.equal(Buffer.from(after.readFile('/d/a')!).toString(), 'synced');
});

test('a sync covers what was written before it, and nothing when it is cut short', async () => {
  const { world, disk } = boot();
  const file = disk.open('/d/a', 'create');
  disk.syncDirectory('/d');
  file.write([bytes('one')], 0);
  const done = file.sync();
  file.write([bytes('two')], 3);
  assert.equal(await outcome(world, done), 'done');
  let told = false;
  void file.sync().then(() => {
    told = true;
  });
  world.losePower('m', LOSE);
  await world.simulator.runFor(100);
  assert.equal(told, false);
  assert.equal(Buffer.from(world.start('m').disk.readFile('/d/a')!).toString(), 'one');
});

test('after a failed sync the bytes stay readable, but no later sync saves them', async () => {
  const { world, disk } = boot();
  const file = disk.open('/d/a', 'create');
  disk.syncDirectory('/d');
  file.write([bytes('doomed')], 0);
  world.disk('m').failNext('sync', /\/a$/, 'EIO');
  assert.ok(hasCode('EIO')(await outcome(world, file.sync())));
  assert.equal(await outcome(world, file.sync()), 'done');
  assert.equal(file.size(), 6);
  world.losePower('m', { unsynced: 'subset', tornTail: false });
  assert.equal(world.start('m').disk.fileSize('/d/a'), 0);
});

test('a full disk takes what fits, then ENOSPC; chosen calls fail as often as asked', () => {
  const { world, disk } = boot();
  world.disk('m').setCapacity(10);
  const file = disk.open('/d/a', 'create');
  file.write([bytes('12345678')], 0);
  assert.throws(() => file.write([bytes('9'), bytes('0ab')], 8), hasCode('ENOSPC'));
  assert.equal(Buffer.from(disk.readFile('/d/a')!).toString(), '1234567890');
  file.write([bytes('ab')], 0);
  file.truncate(2);
  file.write([bytes('c')], 2);
  world.disk('m').failNext('rename', /a$/, 'EIO', 2);
  for (let i = 0; i < 2; i++) assert.throws(() => disk.rename('/d/a', '/d/b'), hasCode('EIO'));
  disk.rename('/d/a', '/d/b');
  assert.equal(disk.fileSize('/d/b'), 3);
});

test('power loss leaves, of unsynced appends, exactly what the kind of loss allows', () => {
  const kinds = fc.constantFrom<PowerLoss['unsynced']>('lose', 'prefix', 'subset');
  const property = fc.property(fc.integer(), kinds, fc.boolean(), (seed, unsynced, tornTail) => {
    const { world, disk } = boot(seed);
    const random = seededRandom(seed);
    const file = disk.open('/d/log', 'create');
    disk.syncDirectory('/d');
    let model = Buffer.alloc(0);
    let synced = 0;
    const starts: number[] = [];
    for (let i = 0; i < 12; i++) {
      const chunk = Buffer.alloc(1 + random.below(20), 65 + i);
      starts.push(model.length);
      file.write([chunk], model.length);
      model = Buffer.concat([model, chunk]);
      if (!random.chance(0.25)) continue;
      file.syncNow();
      synced = model.length;
    }
    world.losePower('m', { unsynced, tornTail });
    const left = Buffer.from(world.start('m').disk.readFile('/d/log')!);
    assert.ok(left.length >= synced && left.length <= model.length);
    assert.deepEqual(left.subarray(0, synced), model.subarray(0, synced));
    if (unsynced === 'lose') assert.equal(left.length, synced);
    if (unsynced === 'prefix') assert.deepEqual(left, model.subarray(0, left.length));
    if (!tornTail) assert.ok([...starts, model.length].includes(left.length));
    for (let i = 0; i < left.length; i++) assert.ok(left[i] === model[i] || left[i] === 0);
  });
  fc.assert(property, propertyRuns(200));
});

test('names survive as a prefix of their changes: a replaced file is the old or the new', () => {
  const seen = new Set<string>();
  for (let seed = 0; seed < 40; seed++) {
    const { world, disk } = boot(seed);
    const write = (path: string, text: string): void => {
      const file = disk.open(path, 'create');
      file.write([bytes(text)], 0);
      file.syncNow();
    };
    write('/d/checkpoint', 'old');
    disk.syncDirectory('/d');
    write('/d/checkpoint.tmp', 'new');
    disk.rename('/d/checkpoint.tmp', '/d/checkpoint');
    write('/d/later', 'x');
    world.losePower('m', { unsynced: 'prefix', tornTail: true });
    const after = world.start('m').disk;
    const text = Buffer.from(after.readFile('/d/checkpoint')!).toString();
    const names = after.list('/d')!.map(({ name }) => name);
    if (names.includes('later')) assert.equal(text, 'new');
    seen.add(`${text} ${names.join()}`);
  }
  assert.deepEqual([...seen].sort(), [
    'new checkpoint',
    'new checkpoint,later',
    'old checkpoint',
    'old checkpoint,checkpoint.tmp',
  ]);
});

test('a crash inside a call: the disk is as it was then, a write perhaps in part', () => {
  const world = new SimWorld(9);
  const runtime = world.start('a');
  runtime.disk.makeDirectory('/d');
  world.disk('a').crashAfter(2, () => world.kill('a'));
  const file = runtime.disk.open('/d/log', 'create');
  file.write([Buffer.from('whole')], 0);
  file.write([Buffer.from('partly'), Buffer.from('never')], 5);
  assert.equal(world.isRunning('a'), false);
  runtime.disk.remove('/d/log');
  const next = world.start('a').disk;
  const found = Buffer.from(next.readFile('/d/log') ?? []).toString();
  assert.match(found, /^whole/);
  assert.ok('wholepartly'.startsWith(found), found);
  assert.throws(() => file.write([Buffer.from('x')], 0), { code: 'EIO' });
  assert.throws(() => runtime.disk.list('/d'), { code: 'EIO' });
});
