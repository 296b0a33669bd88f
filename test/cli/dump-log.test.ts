/**
 * `dump-log`: every file of a log directory is shown, damage is found where it is, and nothing is
 * written, also beside a running broker.
 */
import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { copyFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { ZERO_UUID } from '../../src/base/uuid.ts';
import { type DumpLogOptions, dumpPaths } from '../../src/cli/dump-log.ts';
import { offsetRecord } from '../../src/coordinator/group-records.ts';
import {
  type CatalogKey,
  encodeCatalogKey,
  encodeJobs,
  encodeSettings,
  encodeTopic,
} from '../../src/guest/state/catalog.ts';
import type { Disk } from '../../src/io/runtime.ts';
import { encodeMetadataRecord, metadataRecord } from '../../src/metadata/record-framing.ts';
import { encodeRow, encodeRowKey } from '../../src/mirror/state-row.ts';
import { MirrorState } from '../../src/mirror/states.ts';
import { controlRecordKey } from '../../src/protocol/control-record.ts';
import { buildRecordBatch, type NewRecord } from '../../src/protocol/record.ts';
import { dumpSegment } from '../../src/storage/dump-segment.ts';
import { batchOf, DIRECTORY, follow, marker, NodeHost, SimHost } from '../storage/harness.ts';

const MAIN = new URL('../../src/cli/main.ts', import.meta.url).pathname;
const PRODUCER = 7n;
const FIRST = '00000000000000000000';

type Row = Record<string, unknown> & { readonly file: string; readonly kind: string };

interface Dump {
  readonly rows: Row[];
  readonly problems: Row[];
  readonly text: string;
}

const OPTIONS: DumpLogOptions = { records: false, deep: true, json: true };

async function dump(
  host: SimHost,
  path: string,
  options: Partial<DumpLogOptions> = {},
): Promise<Dump> {
  let text = '';
  const print = async (more: string): Promise<void> => {
    text += more;
  };
  const all = { ...OPTIONS, ...options };
  const totals = await dumpPaths(host.runtime, [path], all, print);
  if (!all.json) return { rows: [], problems: [], text };
  const lines = text.split('\n').slice(0, -1);
  const rows = lines.map((line) => JSON.parse(line) as Row);
  const problems = rows.filter(({ kind }) => kind === 'problem');
  assert.equal(problems.length, totals.problems);
  return { rows, problems, text };
}

const named = (rows: readonly Row[], file: string, kind?: string): Row[] =>
  rows.filter((row) => row.file.endsWith(file) && (kind === undefined || row.kind === kind));

/** Three segments: plain and compressed batches, transactions, an aborted one, an open one. */
async function filledHost(): Promise<SimHost> {
  const host = new SimHost({ segmentBytes: 6_000, indexIntervalBytes: 500 });
  const { log, runtime } = host;
  const at = () => ({ baseOffset: log.logEndOffset, partitionLeaderEpoch: 0 });
  const transactional = { producerId: PRODUCER, producerEpoch: 0, isTransactional: true };
  let baseSequence = 0;
  for (let round = 0; round < 30; round++) {
    follow(log, batchOf(`plain ${'x'.repeat(100)}`, 3, at()));
    const compression = { type: 'zstd', port: runtime.compression } as const;
    follow(log, batchOf(`packed ${'y'.repeat(100)}`, 3, { ...at(), compression }));
    follow(log, batchOf('in a transaction', 2, { ...at(), ...transactional, baseSequence }));
    baseSequence += 2;
    if (round < 29) follow(log, marker(PRODUCER, round % 2 === 0, log.logEndOffset));
  }
  log.updateHighWatermark(log.logEndOffset);
  log.maybeIncrementLogStartOffset(1);
  await host.restart();
  return host;
}

/** Every file of a directory with its content. */
function contents(disk: Disk, path: string): Map<string, string> {
  const found = new Map<string, string>();
  for (const { name, isDirectory } of disk.list(path) ?? []) {
    const child = `${path}/${name}`;
    if (isDirectory) for (const [file, content] of contents(disk, child)) found.set(file, content);
    else found.set(child, Buffer.from(disk.readFile(child) ?? []).toString('base64'));
  }
  return found;
}

function overwrite(host: SimHost, file: string, change: (bytes: Buffer) => Buffer): void {
  const path = file.startsWith('/') ? file : `${DIRECTORY}/${file}`;
  const bytes = change(Buffer.from(host.files().readFile(path) ?? assert.fail(path)));
  const opened = host.files().open(path, 'update');
  opened.truncate(0);
  opened.write([bytes], 0);
  opened.close();
}

function write(host: SimHost, path: string, ...chunks: Uint8Array[]): void {
  host.files().makeDirectory(path.slice(0, path.lastIndexOf('/')));
  const opened = host.files().open(path, 'create');
  opened.write(chunks, 0);
  opened.close();
}

test('a data directory in use is shown whole, found in order, and not written to', async () => {
  const host = await filledHost();
  follow(host.log, batchOf('not flushed yet', 1, { baseOffset: host.log.logEndOffset }));
  const before = contents(host.files(), '/data');
  const { rows, problems } = await dump(host, '/data', { records: true });
  assert.deepEqual(problems, []);
  assert.deepEqual(contents(host.files(), '/data'), before);

  const batches = named(rows, '.log', 'batch');
  assert.equal(batches.length, 30 * 4);
  const bases = batches.map(({ baseOffset }) => Number(baseOffset));
  assert.deepEqual(
    bases,
    [...bases].sort((a, b) => a - b),
  );
  const { position, producerId, baseSequence, isTransactional, isControl, isValid } =
    batches[2] ?? assert.fail();
  assert.deepEqual(
    { position, producerId, baseSequence, isTransactional, isControl, isValid },
    {
      position: Number(batches[0]?.size) + Number(batches[1]?.size),
      producerId: 7,
      baseSequence: 0,
      isTransactional: true,
      isControl: false,
      isValid: true,
    },
  );
  assert.equal(batches[1]?.compression, 'zstd');
  const records = named(rows, '.log', 'record');
  assert.deepEqual(
    [records[0]?.offset, records[0]?.key, records[0]?.value],
    [0, 'k0', `plain ${'x'.repeat(100)}/0`],
  );
  assert.deepEqual(
    records.filter(({ endTxnMarker }) => endTxnMarker !== undefined).map((r) => r.endTxnMarker),
    Array.from({ length: 29 }, (_, round) => (round % 2 === 0 ? 'COMMIT' : 'ABORT')),
  );
  assert.ok(named(rows, '.index', 'entry').length > 5);
  assert.ok(named(rows, '.timeindex', 'entry').length >= 1);
  assert.equal(named(rows, '.txnindex', 'abortedTransaction').length, 14);
  const { producerId: id, currentTxnFirstOffset } =
    named(rows, '.snapshot', 'producer').at(-1) ?? assert.fail();
  assert.deepEqual([id, currentTxnFirstOffset], [7, host.log.logEndOffset - 3]);
  const end = host.log.logEndOffset - 1;
  const recovery = named(rows, 'recovery-point-offset-checkpoint', 'partitionOffset');
  assert.deepEqual(
    recovery.map(({ topic, partition, offset }) => [topic, partition, offset]),
    [['topic', 0, end]],
  );
  assert.equal(named(rows, 'log-start-offset-checkpoint', 'partitionOffset')[0]?.offset, 1);
  assert.equal(named(rows, 'leader-epoch-checkpoint', 'leaderEpoch')[0]?.startOffset, 1);
});

test('damage is named with file, position and offset; what follows is still shown', async () => {
  const cases: [file: RegExp, change: (bytes: Buffer) => Buffer, problem: RegExp, where: object][] =
    [
      [
        /0{20}\.log$/,
        (bytes) => bytes.fill(1, 100, 101),
        /the CRC of the batch does not match/,
        { position: 0, offset: 0, lastOffset: 2 },
      ],
      [/0{20}\.log$/, (bytes) => bytes.subarray(0, 300), /the file ends inside a batch/, {}],
      [
        /0{20}\.log$/,
        (bytes) => Buffer.concat([bytes, Buffer.alloc(80)]),
        /not a record batch/,
        {},
      ],
      [/0{20}\.index$/, (bytes) => bytes.fill(1, 3, 4), /the entry is below its batch/, {}],
      [/0{20}\.index$/, (bytes) => bytes.fill(9, 7, 8), /no batch starts at the position/, {}],
      [/0{20}\.index$/, (bytes) => bytes.fill(255, 3, 4), /the entry is not above the one/, {}],
      [/0{20}\.index$/, (bytes) => bytes.subarray(0, 13), /ends inside an entry of 8/, {}],
      [/0{20}\.index$/, (bytes) => bytes.fill(0x7f, 4, 5), /points beyond the segment/, {}],
      [/0{20}\.timeindex$/, (bytes) => bytes.fill(1, 7, 8), /the entry does not fit its batch/, {}],
      [/0{20}\.txnindex$/, (bytes) => bytes.fill(8, 9, 10), /no ABORT marker of that producer/, {}],
      [/0{20}\.txnindex$/, (bytes) => bytes.fill(8, 1, 2), /entry version 8 is not known/, {}],
      [/\d{20}\.snapshot$/, (bytes) => bytes.fill(8, 12, 13), /the CRC of the snapshot/, {}],
      [/leader-epoch-checkpoint$/, () => Buffer.from('0\n2\n3 0\n'), /1 rows, 2 announced/, {}],
      [/recovery-point.*$/, () => Buffer.from('0\n1\ntopic 0 x\n'), /not an integer: x/, {}],
    ];
  for (const [pattern, change, expected, where] of cases) {
    const host = await filledHost();
    const files = [...contents(host.files(), '/data').keys()];
    const file = files.find((path) => pattern.test(path)) ?? assert.fail(String(pattern));
    overwrite(host, file, change);
    const { rows, problems } = await dump(host, '/data');
    assert.ok(problems.length > 0, String(expected));
    const first = problems.find(({ file: path }) => path === file) ?? assert.fail(file);
    assert.match(String(first.problem), expected, file);
    for (const [name, value] of Object.entries(where)) assert.equal(first[name], value);
    if (!/index|snapshot|checkpoint/.test(file)) assert.equal(typeof first.offset, 'number');
    const shown = new Set(rows.filter(({ kind }) => kind === 'file').map((row) => row.file));
    assert.ok(shown.size > 10);
    await host.end();
  }
});

test('without --deep nothing is compared, CRCs neither', async () => {
  const host = await filledHost();
  overwrite(host, `${FIRST}.log`, (bytes) => bytes.fill(1, 100, 101));
  const shallow = await dump(host, `${DIRECTORY}/${FIRST}.log`, { deep: false });
  assert.deepEqual(shallow.problems, []);
  assert.equal(named(shallow.rows, '.log', 'batch')[0]?.isValid, undefined);
});

test('offsets must ascend, in a segment and from one to the next', async () => {
  const host = new SimHost();
  const log = (base: number) => `/elsewhere/t-0/${String(base).padStart(20, '0')}.log`;
  const batch = (baseOffset: number) => batchOf('v', 2, { baseOffset });
  write(host, log(0), batch(0), batch(4), batch(5));
  write(host, log(6), batch(6), batch(8));
  const { problems } = await dump(host, '/elsewhere');
  const found = problems.map(
    ({ file, offset, problem }) => `${file.slice(-6)} ${offset} ${problem}`,
  );
  assert.deepEqual(found, [
    '00.log 5 the batch starts below offset 6, which was there before',
    '06.log 6 the batch starts below offset 7, which was there before',
  ]);
});

test('a record out of its batch, and one that cannot be read, are found', async () => {
  const host = new SimHost();
  const key = null;
  const value = Buffer.from('v');
  const records: NewRecord[] = [
    { key, value, timestamp: 1, offset: 1 },
    { key, value, timestamp: 1, offset: 0 },
  ];
  const port = { ...host.runtime.compression, compress: () => Buffer.from('no gzip') };
  const compression = { type: 'gzip', port } as const;
  const unreadable = batchOf('v', 1, { baseOffset: 9, compression });
  write(host, `/elsewhere/${FIRST}.log`, buildRecordBatch({ records, lastOffset: 1 }), unreadable);
  const { problems } = await dump(host, '/elsewhere');
  assert.match(String(problems[0]?.problem), /a record has offset 0, outside 2 to 1/);
  assert.match(String(problems[1]?.problem), /the records cannot be read: gzip payload/);
  assert.deepEqual([problems[1]?.offset, problems.length], [9, 2]);
});

test('bytes are text or base64, 64-bit numbers exact', async () => {
  const host = new SimHost();
  const headers = [{ key: 'h', value: null }];
  const batch = buildRecordBatch({
    records: [
      { key: Buffer.from('schlüssel'), value: Buffer.from([0, 255]), timestamp: 5, headers },
    ],
    producerId: -(2n ** 62n) - 1n,
    producerEpoch: 0,
    baseSequence: 4,
  });
  write(host, `/elsewhere/${FIRST}.log`, batch);
  const { rows, problems } = await dump(host, '/elsewhere', { records: true });
  assert.deepEqual(problems, []);
  assert.equal(rows[1]?.producerId, '-4611686018427387905');
  const { file: _, ...record } = rows[2] ?? assert.fail();
  assert.deepEqual(record, {
    kind: 'record',
    offset: 0,
    timestamp: 5,
    sequence: 4,
    key: 'schlüssel',
    value: { base64: 'AP8=' },
    headers: [{ key: 'h', value: null }],
  });
  const { text } = await dump(host, '/elsewhere', { records: true, json: false });
  const [header, , shown, end] = text.split('\n');
  assert.equal(header, `/elsewhere/${FIRST}.log: segment, ${batch.length} bytes`);
  assert.equal(
    shown,
    '  record offset: 0 timestamp: 5 sequence: 4 key: "schlüssel" value: {"base64":"AP8="} ' +
      'headers: [{"key":"h","value":null}]',
  );
  assert.equal(end, `  end batches: 1 records: 1 nextOffset: 1 bytes: ${batch.length}`);
});

test('G22 rows of mirrors, topics and jobs are understood, secrets hidden', async () => {
  const host = new SimHost();
  const configs = new Map([
    ['bootstrap.servers', 'a:1'],
    ['ssl.key.password', 'secret'],
  ]);
  const topic = {
    mirrorName: 'm',
    removed: false,
    membershipOffset: 3,
    topicId: ZERO_UUID,
    sourceTopicId: ZERO_UUID,
    finalConfigs: [],
    targetReplicationFactor: -1,
  };
  const jobs = { guestId: 7, claimedAtMs: 5 };
  const rows: [CatalogKey, Uint8Array | null][] = [
    [{ type: 'settings', mirror: 'm' }, encodeSettings({ configs, producerIdTag: 1 })],
    [{ type: 'topic', topic: 't' }, encodeTopic(topic)],
    [{ type: 'jobs', mirror: 'm' }, encodeJobs(jobs)],
    [{ type: 'jobs', mirror: 'n' }, null],
  ];
  const records = rows.map(([key, value]) => ({
    key: encodeCatalogKey(key),
    value,
    timestamp: 1,
  }));
  write(host, `/data/__mirror_state-0/${FIRST}.log`, buildRecordBatch({ records }));
  const dumped = await dump(host, '/data', { records: true });
  assert.deepEqual(dumped.problems, []);
  const found = named(dumped.rows, `__mirror_state-0/${FIRST}.log`, 'record');
  assert.deepEqual(
    found.map(({ recordType, mirror, topic, value }) => [recordType, mirror ?? topic, value]),
    [
      [
        'mirrorSettings',
        'm',
        {
          configs: { 'bootstrap.servers': 'a:1', 'ssl.key.password': '[hidden]' },
          producerIdTag: 1,
        },
      ],
      ['mirrorTopic', 't', topic],
      ['mirrorJobs', 'm', jobs],
      ['mirrorJobs', 'n', null],
    ],
  );
});

test('A6 secrets in the metadata log are hidden', async () => {
  const host = new SimHost();
  const values = [
    metadataRecord('ConfigRecord', {
      resourceType: 64,
      resourceName: 'm',
      name: 'sasl.jaas.config',
      value: 'hunter2',
    }),
    metadataRecord('UserScramCredentialRecord', {
      name: 'alice',
      mechanism: 1,
      salt: Buffer.from('hunter2'),
      storedKey: Buffer.from('hunter2'),
      serverKey: Buffer.from('hunter2'),
      iterations: 4096,
    }),
  ];
  const records = values.map((value) => ({
    key: null,
    value: encodeMetadataRecord(value),
    timestamp: 1,
  }));
  write(host, `/data/__cluster_metadata-0/${FIRST}.log`, buildRecordBatch({ records }));
  const dumped = await dump(host, '/data', { records: true });
  const found = named(dumped.rows, `__cluster_metadata-0/${FIRST}.log`, 'record');
  assert.deepEqual(
    found.map(({ value }) => value),
    [
      { resourceType: 64, resourceName: 'm', name: 'sasl.jaas.config', value: '[hidden]' },
      {
        name: 'alice',
        mechanism: 1,
        salt: '[hidden]',
        storedKey: '[hidden]',
        serverKey: '[hidden]',
        iterations: 4096,
      },
    ],
  );
});

test('records of internal topics are understood, by directory or by --as', async () => {
  const host = new SimHost();
  const committed = {
    offset: 42,
    leaderEpoch: 1,
    metadata: 'm',
    commitTimestampMs: 5,
    expireTimestampMs: -1,
    topicId: ZERO_UUID,
  };
  const group = { ...offsetRecord('g', 'orders', 3, committed), timestamp: 1 };
  const rowKey = encodeRowKey({ mirror: 'source', topicId: ZERO_UUID, partition: 2 });
  const row = encodeRow({
    topicName: 'orders',
    partition: 2,
    state: MirrorState.MIRRORING,
    lastMirroredOffset: 17,
    stateEpoch: 1,
    leaderEpoch: 0,
    membershipOffset: 9,
    sourceClusterId: 'c',
    sourceTopicId: ZERO_UUID,
    sourceEpochs: [{ epoch: 4, startOffset: 0 }],
    previousState: MirrorState.PREPARING,
    retryAttempt: 0,
    cause: '',
    message: '',
    sinceMs: 5,
    reachedMirroring: true,
    settled: false,
    closedTransactions: [],
    closedAtSource: [],
    cutOffset: -1,
    cutLeaderEpoch: -1,
  });
  const topic = metadataRecord('TopicRecord', { name: 'orders', topicId: ZERO_UUID });
  const leaderChange = {
    key: controlRecordKey(2),
    value: Buffer.from('00000000000102000000010002000000010000', 'hex'),
    timestamp: 1,
  };
  const kept: [topic: string, records: NewRecord[], isControl: boolean][] = [
    ['__consumer_offsets', [group], false],
    ['__mirror_state', [{ key: rowKey, value: row, timestamp: 1 }], false],
    [
      '__cluster_metadata',
      [{ key: null, value: encodeMetadataRecord(topic), timestamp: 1 }],
      false,
    ],
    ['unknown', [group], false],
  ];
  for (const [name, records, isControl] of kept) {
    write(host, `/data/${name}-0/${FIRST}.log`, buildRecordBatch({ records, isControl }));
  }
  const { rows, problems } = await dump(host, '/data', { records: true });
  assert.deepEqual(problems, []);
  const record = (name: string) => named(rows, `${name}-0/${FIRST}.log`, 'record')[0];
  const offsets = record('__consumer_offsets');
  assert.deepEqual(
    [offsets?.recordType, offsets?.groupId, offsets?.topic, offsets?.partition, offsets?.value],
    ['offset', 'g', 'orders', 3, committed],
  );
  const mirrored = record('__mirror_state') ?? assert.fail();
  const value = mirrored.value as Record<string, unknown>;
  assert.deepEqual(
    [mirrored.mirror, mirrored.partition, value.state, value.lastMirroredOffset],
    ['source', 2, 'MIRRORING', 17],
  );
  const metadata = record('__cluster_metadata') ?? assert.fail();
  assert.deepEqual([metadata.recordType, metadata.version], ['TopicRecord', 0]);
  assert.equal((metadata.value as Record<string, unknown>).name, 'orders');
  assert.equal(record('unknown')?.recordType, undefined);

  const path = `/data/unknown-0/${FIRST}.log`;
  const as = await dump(host, path, { records: true, as: '__consumer_offsets' });
  assert.equal(as.rows[2]?.groupId, 'g');
  const wrong = await dump(host, path, { as: '__cluster_metadata' });
  assert.match(String(wrong.problems[0]?.problem), /the record cannot be understood/);
  assert.equal(wrong.problems[0]?.offset, 0);

  const control = buildRecordBatch({ records: [leaderChange], isControl: true });
  write(host, `/data/__cluster_metadata-0/${FIRST}-0000000001.checkpoint`, control);
  const snapshot = await dump(host, '/data/__cluster_metadata-0', { records: true });
  const change = named(snapshot.rows, '.checkpoint', 'record')[0];
  assert.equal(change?.controlRecord, 'LeaderChangeMessage');
});

test('a batch that is being written is waited for', () => {
  const host = new SimHost();
  const path = `/elsewhere/${FIRST}.log`;
  const bytes = Buffer.concat([batchOf('a', 1), batchOf('b', 1, { baseOffset: 1 })]);
  write(host, path, bytes.subarray(0, bytes.length - 5));
  const { compression } = host.runtime;
  const options = { records: false, deep: true, decoder: undefined, minOffset: 0, baseOffset: 0 };
  const kinds: string[] = [];
  for (const row of dumpSegment(host.files(), path, { ...options, compression })) {
    kinds.push(row?.kind ?? 'pause');
    if (row === undefined) write(host, path, bytes);
  }
  assert.deepEqual(kinds, ['batch', 'pause', 'batch', 'end']);
});

test('the command exits with 0 when all is in order, else with 1 and a count', async () => {
  const host = new NodeHost();
  follow(host.log, batchOf('v', 3));
  const twinlog = (...args: string[]) => {
    const { status, stdout, stderr } = spawnSync(process.execPath, [MAIN, 'dump-log', ...args], {
      encoding: 'utf8',
    });
    return { status, stdout, stderr };
  };
  const fine = twinlog('--deep', host.directory);
  assert.deepEqual([fine.status, fine.stderr], [0, '']);
  assert.match(fine.stdout, /0\.log: segment, \d+ bytes\n {2}batch baseOffset: 0 lastOffset: 2/);
  const copies = mkdtempSync(join(tmpdir(), 'twinlog-dump-'));
  const copy = join(copies, `${FIRST}.log`);
  copyFileSync(join(host.log.directory, `${FIRST}.log`), copy);
  await host.end();
  writeFileSync(copy, readFileSync(copy).fill(0, 90, 91));
  const damaged = twinlog('--deep', copy);
  assert.deepEqual([damaged.status, damaged.stderr], [1, 'twinlog: 1 problem in 1 of 1 file.\n']);
  assert.match(
    damaged.stdout,
    /PROBLEM in 0{20}\.log, position 0, offset 0, lastOffset 2: the CRC/,
  );
  rmSync(copies, { recursive: true });
  const gone = twinlog(copy);
  assert.deepEqual([gone.status, gone.stdout], [1, '']);
  assert.equal(gone.stderr, `twinlog: ${copy}: no such file or directory.\n`);
});
