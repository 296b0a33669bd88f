/** Frames and headers: cutting streams, memory rules, size limits, header versions. */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import fc from 'fast-check';
import { ByteReader, ByteWriter, MalformedBytes } from '../../src/base/bytes.ts';
import {
  ApiKey,
  requestHeaderVersion,
  responseHeaderVersion,
} from '../../src/protocol/api-keys.ts';
import { codec } from '../../src/protocol/codec.ts';
import {
  BadFrameSize,
  encodeRequestFrame,
  encodeResponseFrame,
  FrameReader,
  type FrameReaderOptions,
} from '../../src/protocol/frame.ts';
import { HeartbeatRequest } from '../../src/protocol/messages/12-heartbeat.ts';
import { ApiVersionsResponse } from '../../src/protocol/messages/18-api-versions.ts';
import { readRequestHeader, readResponseHeader } from '../../src/protocol/request-header.ts';
import { propertyRuns } from '../property-runs.ts';

function framed(frames: readonly Uint8Array[]): Buffer {
  return Buffer.concat(
    frames.flatMap((frame) => {
      const size = Buffer.alloc(4);
      size.writeInt32BE(frame.length);
      return [size, frame];
    }),
  );
}

/** Feeds a stream in reads of the given sizes, as a socket would. */
function feed(reader: FrameReader, stream: Uint8Array, sizes: () => number): void {
  let at = 0;
  while (at < stream.length) {
    const target = reader.receiveBuffer();
    assert.ok(target.length > 0);
    const length = Math.min(sizes(), target.length, stream.length - at);
    target.set(stream.subarray(at, at + length));
    at += length;
    reader.received(length);
  }
}

function collect(options: FrameReaderOptions, stream: Uint8Array, sizes: () => number) {
  const frames: Uint8Array[] = [];
  const keep = options.reuseFrameBuffer === true;
  const reader = new FrameReader((frame) => frames.push(keep ? frame.slice() : frame), options);
  feed(reader, stream, sizes);
  return frames;
}

describe('FrameReader', () => {
  it('delivers every frame intact, however the stream is cut, and keeps those still held', () => {
    const frameSize = fc.oneof(fc.nat(40), fc.nat(9_000), fc.nat(200_000));
    const readSize = fc.oneof(fc.integer({ min: 1, max: 9 }), fc.integer({ min: 1, max: 70_000 }));
    const property = fc.property(
      fc.array(frameSize, { maxLength: 8 }),
      fc.array(readSize, { minLength: 1, maxLength: 20 }),
      fc.boolean(),
      (sizes, reads, reuseFrameBuffer) => {
        const frames = sizes.map((size, i) => new Uint8Array(size).fill(i + 1));
        let turn = 0;
        const next = () => (reads[turn++ % reads.length] as number) + (turn > 500 ? 60_000 : 0);
        const delivered = collect({ reuseFrameBuffer }, framed(frames), next);
        assert.deepEqual(
          delivered.map((frame) => Buffer.from(frame)),
          frames.map((frame) => Buffer.from(frame)),
        );
      },
    );
    fc.assert(property, propertyRuns(60));
  });

  it('delivers many small frames of one read as views of one buffer', () => {
    const frames = Array.from({ length: 100 }, (_, i) => new Uint8Array([i]));
    const delivered = collect({}, framed(frames), () => 60_000);
    assert.deepEqual(
      delivered.map((frame) => frame[0]),
      frames.map((frame) => frame[0]),
    );
    assert.equal(new Set(delivered.map((frame) => frame.buffer)).size, 1);
  });

  it('has the rest of a large frame received straight into the frame', () => {
    const frames: Uint8Array[] = [];
    const reader = new FrameReader((frame) => frames.push(frame));
    const stream = framed([new Uint8Array(300_000).fill(5)]);
    reader.receiveBuffer().set(stream.subarray(0, 1000));
    reader.received(1000);
    const target = reader.receiveBuffer();
    assert.equal(target.length, stream.length - 1000);
    target.set(stream.subarray(1000));
    reader.received(target.length);
    assert.equal(frames[0]?.buffer, target.buffer);
    assert.equal(
      frames[0]?.every((byte) => byte === 5),
      true,
    );
  });

  it('reuses one buffer for large frames when told so', () => {
    const buffers = new Set<ArrayBufferLike>();
    const reader = new FrameReader((frame) => buffers.add(frame.buffer), {
      reuseFrameBuffer: true,
    });
    const sizes = [300_000, 200_000, 250_000];
    feed(reader, framed(sizes.map((size) => new Uint8Array(size))), () => 1 << 20);
    assert.equal(buffers.size, 1);
  });

  it('refuses negative and oversized frames, naming both, and delivers nothing after', () => {
    for (const [size, expected] of [
      [-1, 'frame of -1 bytes; allowed are 0 to 1000'],
      [1001, 'frame of 1001 bytes; allowed are 0 to 1000'],
    ] as const) {
      const frames: Uint8Array[] = [];
      const reader = new FrameReader((frame) => frames.push(frame), { maxFrameBytes: 1000 });
      const stream = Buffer.alloc(12);
      stream.writeInt32BE(size);
      assert.throws(
        () => feed(reader, stream, () => 12),
        (error) => {
          assert.ok(error instanceof BadFrameSize);
          assert.equal(error.message, expected);
          assert.deepEqual([error.size, error.limit], [size, 1000]);
          return true;
        },
      );
      feed(reader, framed([new Uint8Array(2)]), () => 6);
      assert.equal(frames.length, 0);
    }
  });

  it('delivers nothing after stop, also of what has been read', () => {
    const frames: number[] = [];
    const reader: FrameReader = new FrameReader((frame) => {
      frames.push(frame[0] as number);
      reader.stop();
    });
    feed(reader, framed([new Uint8Array([1]), new Uint8Array([2])]), () => 100);
    assert.deepEqual(frames, [1]);
  });
});

describe('headers', () => {
  it('follow from API and version', () => {
    assert.equal(requestHeaderVersion(ApiKey.Produce, 8), 1);
    assert.equal(requestHeaderVersion(ApiKey.Produce, 9), 2);
    assert.equal(responseHeaderVersion(ApiKey.Produce, 9), 1);
    assert.equal(requestHeaderVersion(ApiKey.ApiVersions, 3), 2);
    assert.equal(responseHeaderVersion(ApiKey.ApiVersions, 3), 0);
    assert.equal(requestHeaderVersion(ApiKey.SaslHandshake, 1), 1);
    assert.equal(requestHeaderVersion(ApiKey.CreateMirror, 0), 2);
    assert.equal(requestHeaderVersion(9999, 0), 1);
  });

  it('surround requests and responses', () => {
    const value = { groupId: 'g', generationId: 3, memberId: 'm', groupInstanceId: null };
    const request = codec(HeartbeatRequest, 4);
    const frame = Buffer.concat(
      encodeRequestFrame({ correlationId: 7, clientId: 'c' }, request, value),
    );
    assert.equal(frame.toString('hex'), '00000016000c00040000000700016300026700000003026d0000');
    const reader = new ByteReader(frame.subarray(4));
    const header = { apiKey: 12, apiVersion: 4, correlationId: 7, clientId: 'c' };
    assert.deepEqual(readRequestHeader(reader), header);
    assert.deepEqual(request.read(reader), value);
    assert.equal(reader.remaining, 0);

    const versions = codec(ApiVersionsResponse, 3);
    const response = Buffer.concat(encodeResponseFrame(9, versions, { errorCode: 0, apiKeys: [] }));
    assert.equal(response.toString('hex'), '0000000c00000009000001000000' + '0000');
    const back = new ByteReader(response.subarray(4));
    assert.equal(readResponseHeader(back, 18, 3), 9);
    assert.equal(versions.read(back).errorCode, 0);
  });

  it('skip tagged fields they do not know, within their bytes', () => {
    const writer = new ByteWriter();
    writer.int16(12);
    writer.int16(4);
    writer.int32(1);
    writer.nullableString(null);
    writer.uvarint(1);
    writer.uvarint(0);
    writer.uvarint(2);
    writer.int16(99);
    writer.int8(5);
    const bytes = writer.toBytes();
    const reader = new ByteReader(bytes);
    assert.equal(readRequestHeader(reader).clientId, null);
    assert.equal(reader.int8(), 5);
    assert.throws(() => readRequestHeader(new ByteReader(bytes.subarray(0, 12))), MalformedBytes);
  });
});

it('a large frame is received into its own memory, the head of the next one apart', () => {
  const taken: Uint8Array[] = [];
  const frames: Uint8Array[] = [];
  const reader = new FrameReader((frame) => frames.push(frame), {
    allocate: (length) => {
      const memory = new Uint8Array(length);
      taken.push(memory);
      return memory;
    },
  });
  const large = 40_000;
  const stream = new Uint8Array(2 * (4 + large));
  new DataView(stream.buffer).setInt32(0, large);
  new DataView(stream.buffer).setInt32(4 + large, large);
  let copied = 0;
  for (let at = 0; at < stream.length; ) {
    const room = reader.receiveBuffer();
    const length = Math.min(room.length, stream.length - at, 10_000);
    room.set(stream.subarray(at, at + length));
    if (taken.every((memory) => memory.buffer !== room.buffer)) copied += length;
    reader.received(length);
    at += length;
  }
  assert.deepEqual(frames, taken);
  assert.deepEqual([frames.length, copied], [2, 10_000 + 128]);
});
