/**
 * Apache Kafka's own DumpLogSegments reads what our log writes: every batch, every index.
 */
import assert from 'node:assert/strict';
import { after, test } from 'node:test';
import { buildTransactionMarker } from '../../src/protocol/control-record.ts';
import { buildRecordBatch } from '../../src/protocol/record.ts';
import { batchOf, follow, NodeHost } from '../storage/harness.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { tool } from './tools.ts';

const skip = await interopSkipReason();
const SEGMENT_BYTES = 20_000;
const PRODUCER = -9n;

const host = new NodeHost({ segmentBytes: SEGMENT_BYTES });
after(() => host.end());

/** All kinds of batches: codecs, gaps, empty values, transactions, epochs, odd timestamps. */
function fill(): number {
  const { log, runtime } = host;
  let batches = 0;
  let sequence = 0;
  const append = (bytes: Uint8Array) => {
    follow(log, bytes);
    batches++;
  };
  for (let round = 0; round < 40; round++) {
    const partitionLeaderEpoch = Math.floor(round / 10);
    const at = () => ({ baseOffset: log.logEndOffset, partitionLeaderEpoch });
    for (const type of ['none', 'gzip', 'snappy', 'lz4', 'zstd'] as const) {
      const compression = { type, port: runtime.compression };
      append(batchOf(`${type} ${'v'.repeat(300)}`, 5, { ...at(), compression }));
    }
    append(
      batchOf('gap', 2, {
        ...at(),
        baseOffset: log.logEndOffset + 7,
        lastOffset: log.logEndOffset + 20,
      }),
    );
    append(buildRecordBatch({ ...at(), records: [{ key: null, value: null, timestamp: -1 }] }));
    const timestamp = 1_600_000_000_000 + ((round * 7919) % 100) * 1_000_000;
    const headers = [{ key: 'h', value: Buffer.from('x') }];
    const key = Buffer.alloc(0);
    append(buildRecordBatch({ ...at(), records: [{ key, value: key, headers, timestamp }] }));
    append(
      batchOf('transactional', 3, {
        ...at(),
        producerId: PRODUCER,
        producerEpoch: 1,
        baseSequence: sequence,
        isTransactional: true,
      }),
    );
    sequence += 3;
    const commit = round % 3 !== 0;
    const marker = {
      commit,
      coordinatorEpoch: 2,
      producerId: PRODUCER,
      producerEpoch: 1,
      timestamp,
    };
    append(buildTransactionMarker({ ...marker, ...at() }));
  }
  return batches;
}

test('DumpLogSegments reads every segment, index and snapshot without complaint', {
  skip,
}, async () => {
  const batches = fill();
  host.log.truncateTo(host.log.logEndOffset - 1);
  const end = host.log.logEndOffset;
  await host.restart();
  const directory = host.log.directory;
  const segments = host.log.segments();
  assert(segments.length > 5);
  const files = host.runtime.disk.list(directory)?.map((entry) => entry.name) ?? [];
  const paths = (suffix: string) =>
    files.filter((name) => name.endsWith(suffix)).map((name) => `${directory}/${name}`);

  const logs = await tool('dumpLog', ['--deep-iteration', '--files', paths('.log').join()]);
  assert.doesNotMatch(logs, /isvalid: false|[Ff]ound \d+ invalid bytes|[Mm]ismatch/);
  assert.equal(logs.match(/isvalid: true/g)?.length, batches - 1);
  assert.match(logs, new RegExp(`lastOffset: ${end - 1} `));
  assert.match(logs, /endTxnMarker: ABORT coordinatorEpoch: 2/);

  const indexes = [...paths('.index'), ...paths('.timeindex')].join();
  const plain = await tool('dumpLog', ['--deep-iteration', '--files', indexes]);
  assert.doesNotMatch(plain, /[Mm]ismatch|out of order|not found/);
  assert((plain.match(/offset: \d+ position: \d+/g)?.length ?? 0) > 10);
  const sane = await tool('dumpLog', ['--index-sanity-check', '--files', indexes]);
  assert.equal(sane.match(/passed sanity check/g)?.length, segments.length * 2);

  const aborted = await tool('dumpLog', ['--files', paths('.txnindex').join()]);
  assert.equal(aborted.match(new RegExp(`producerId: ${PRODUCER} `, 'g'))?.length, 13);
  const newest = paths('.snapshot').at(-1) ?? assert.fail();
  const snapshot = await tool('dumpLog', ['--files', newest]);
  const producer = `producerId: ${PRODUCER} producerEpoch: 1 coordinatorEpoch: 2`;
  assert(snapshot.includes(`${producer} currentTxnFirstOffset: OptionalLong[${end - 3}]`));
  assert(snapshot.includes(`firstSequence: 117 lastSequence: 119 lastOffset: ${end - 1}`));
});
