import assert from 'node:assert/strict';
import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import fs from 'node:fs';
import os from 'node:os';
import { after, test } from 'node:test';
import { nodeDisk } from '../../src/io/node/node-disk.ts';
import { DiskError } from '../../src/io/runtime.ts';

const root = fs.mkdtempSync(`${os.tmpdir()}/twinlog-disk-`);
after(() => fs.rmSync(root, { recursive: true }));
const disk = nodeDisk();
const bytes = (text: string): Buffer => Buffer.from(text);
const hasCode = (code: string) => (error: unknown) =>
  error instanceof DiskError && error.code === code && error.message.includes(code);

test('a file is written, read in parts, truncated and synced', async () => {
  const file = disk.open(`${root}/a`, 'create');
  file.write([bytes('hello '), bytes(''), bytes('world')], 0);
  file.write([bytes('W')], 6);
  await file.sync();
  file.syncNow();
  assert.equal(file.size(), 11);
  const target = new Uint8Array(8);
  assert.equal(file.read(target, 6), 5);
  assert.equal(Buffer.from(target).toString('latin1', 0, 5), 'World');
  assert.equal(file.read(target, 11), 0);
  file.truncate(5);
  assert.equal(disk.readFile(`${root}/a`)?.toString(), 'hello');
  assert.equal(disk.fileSize(`${root}/a`), 5);
  file.close();
  assert.throws(() => file.size(), hasCode('EBADF'));
  await assert.rejects(file.sync(), hasCode('EBADF'));
});

test('more chunks than one system call takes are all written, in order', () => {
  const file = disk.open(`${root}/chunks`, 'create');
  const chunks = Array.from({ length: 5000 }, (_, i) => bytes(`${i};`));
  file.write(chunks, 3);
  file.close();
  const expected = Buffer.concat([Buffer.alloc(3), ...chunks]);
  assert.deepEqual(disk.readFile(`${root}/chunks`), expected);
});

test('short writes are continued; a write of nothing is EIO', () => {
  const sizes = [1, 4, 2, 7, 3];
  const short = nodeDisk((fd, chunks, position) => {
    const all = Buffer.concat([...chunks]);
    return fs.writeSync(fd, all, 0, Math.min(all.length, sizes.shift() ?? 5), position);
  });
  const file = short.open(`${root}/short`, 'create');
  file.write([bytes('abc'), bytes('defg'), bytes('hijklmnop'), bytes('q')], 0);
  file.close();
  assert.equal(short.readFile(`${root}/short`)?.toString(), 'abcdefghijklmnopq');
  const stuck = nodeDisk(() => 0).open(`${root}/short`, 'update');
  assert.throws(() => stuck.write([bytes('x')], 0), hasCode('EIO'));
  stuck.close();
});

test('a full disk is ENOSPC', { skip: !fs.existsSync('/dev/full') }, () => {
  const file = disk.open('/dev/full', 'update');
  assert.throws(() => file.write([bytes('x')], 0), hasCode('ENOSPC'));
  file.close();
});

test('closing with a sync in flight lets the sync finish', async () => {
  const file = disk.open(`${root}/closing`, 'create');
  file.write([bytes('x')], 0);
  const synced = file.sync();
  file.close();
  await synced;
});

test('open modes and missing paths', () => {
  assert.throws(() => disk.open(`${root}/none`, 'read'), hasCode('ENOENT'));
  assert.throws(() => disk.open(`${root}/none`, 'update'), hasCode('ENOENT'));
  assert.equal(disk.readFile(`${root}/none`), undefined);
  assert.equal(disk.fileSize(`${root}/none`), undefined);
  assert.equal(disk.list(`${root}/none`), undefined);
  disk.open(`${root}/kept`, 'create').close();
  const readOnly = disk.open(`${root}/kept`, 'read');
  assert.throws(() => readOnly.write([bytes('x')], 0), hasCode('EBADF'));
  readOnly.close();
});

test('directories: made with parents, listed by name, renamed over, removed whole', () => {
  disk.makeDirectory(`${root}/d/e`);
  disk.makeDirectory(`${root}/d/e`);
  for (const name of ['b', 'a', 'c']) disk.open(`${root}/d/${name}`, 'create').close();
  assert.deepEqual(disk.list(`${root}/d`), [
    { name: 'a', isDirectory: false },
    { name: 'b', isDirectory: false },
    { name: 'c', isDirectory: false },
    { name: 'e', isDirectory: true },
  ]);
  disk.rename(`${root}/d/a`, `${root}/d/b`);
  disk.syncDirectory(`${root}/d`);
  assert.deepEqual(
    disk.list(`${root}/d`)?.map(({ name }) => name),
    ['b', 'c', 'e'],
  );
  assert.equal(disk.fileSize(`${root}/d/e`), undefined);
  disk.remove(`${root}/d`);
  disk.remove(`${root}/d`);
  assert.equal(disk.list(`${root}/d`), undefined);
  assert.throws(() => disk.rename(`${root}/d`, `${root}/x`), hasCode('ENOENT'));
});

const DISK_MODULE = new URL('../../src/io/node/node-disk.ts', import.meta.url).href;
const LOCKER = `
  import { nodeDisk } from ${JSON.stringify(DISK_MODULE)};
  const lock = nodeDisk().lock(process.argv[1]);
  console.log(lock === undefined ? 'lost' : 'won');
  if (lock !== undefined) setInterval(() => {}, 1000);
`;

/** A process that tries to take the lock, and its answer. */
async function contender(path: string): Promise<{ process: ChildProcess; answer: string }> {
  const child = spawn(process.execPath, ['--input-type=module', '-e', LOCKER, path]);
  const [line] = (await once(child.stdout, 'data')) as [Buffer];
  return { process: child, answer: line.toString().trim() };
}

test('a lock has one owner; kill -9 frees it and leaves nothing stale', async () => {
  const path = `${root}/.lock`;
  const first = await contender(path);
  assert.equal(first.answer, 'won');
  assert.equal(disk.lock(path), undefined);
  first.process.kill('SIGKILL');
  await once(first.process, 'exit');
  const own = disk.lock(path);
  assert.ok(own !== undefined);
  assert.equal(disk.lock(path), undefined, 'not twice in one process');
  own.release();
  assert.deepEqual(
    fs.readdirSync(root).filter((name) => name.startsWith('.lock')),
    [],
  );
  fs.writeFileSync(`${path}.${process.pid}-1-abcdef01`, ''); // our pid, in another life
  disk.lock(path)?.release();
  assert.deepEqual(
    fs.readdirSync(root).filter((name) => name.startsWith('.lock')),
    [],
  );
});

test('racing for a lock that a dead process left, at most one wins', async () => {
  const path = `${root}/.race`;
  fs.writeFileSync(`${path}.999999999-5-abcdef01`, '');
  const all = await Promise.all(Array.from({ length: 4 }, () => contender(path)));
  const winners = all.filter(({ answer }) => answer === 'won');
  for (const { process } of all) process.kill('SIGKILL');
  assert.ok(winners.length <= 1, `${winners.length} winners`);
});
