/** Dispatch: what is served, what closes the connection, and ApiVersions of unknown versions. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BufferPool } from '../../src/base/buffer-pool.ts';
import { ByteReader, ByteWriter } from '../../src/base/bytes.ts';
import { type Codec, codec } from '../../src/protocol/codec.ts';
import { errors } from '../../src/protocol/errors.ts';
import { encodeRequestFrame } from '../../src/protocol/frame.ts';
import { HeartbeatRequest, HeartbeatResponse } from '../../src/protocol/messages/12-heartbeat.ts';
import {
  ApiVersionsRequest,
  ApiVersionsResponse,
} from '../../src/protocol/messages/18-api-versions.ts';
import { readResponseHeader, writeRequestHeader } from '../../src/protocol/request-header.ts';
import type { EncodableOf, Message } from '../../src/protocol/schema.ts';
import {
  type ApiHandler,
  apiHandler,
  type BrokerServices,
  NO_RESPONSE,
  type RequestContext,
} from '../../src/server/api-handler.ts';
import { RequestHandler } from '../../src/server/request-handler.ts';
import { UnanswerableRequest } from '../../src/server/socket-server.ts';

const CONNECTION = { connectionId: 8, listenerName: 'PLAINTEXT', clientHost: '192.0.2.7' };
const LISTED = [{ apiKey: 12, minVersion: 1, maxVersion: 3 }];

function handlerOf(answer: unknown, calls: unknown[] = []): RequestHandler {
  const heartbeat = apiHandler({
    request: HeartbeatRequest,
    response: HeartbeatResponse,
    versions: '1-2',
    unlistedVersions: '4',
    handle: (_services, request, context: RequestContext) => {
      calls.push(request, context);
      return answer as EncodableOf<typeof HeartbeatResponse>;
    },
  });
  const table = new Map<number, ApiHandler>([[12, heartbeat]]);
  return new RequestHandler(
    { listedApis: LISTED } as unknown as BrokerServices,
    table,
    new BufferPool(),
  );
}

/** The frame of a request, without its length. */
function frameOf<M extends Message>(request: Codec<M>, value: EncodableOf<M>): Buffer {
  const header = { correlationId: 77, clientId: 'me' };
  return Buffer.concat(encodeRequestFrame(header, request, value)).subarray(4);
}

const HEARTBEAT = { groupId: 'g', generationId: 3, memberId: 'm' };

function headerOnly(apiKey: number, apiVersion: number): Uint8Array {
  const writer = new ByteWriter();
  writeRequestHeader(writer, { apiKey, apiVersion, correlationId: 77, clientId: 'me' });
  return writer.toBytes();
}

test('a served version is decoded, handled and answered in that version', async () => {
  for (const version of [1, 2, 4]) {
    const calls: unknown[] = [];
    const handler = handlerOf({ errorCode: 27, throttleTimeMs: 5 }, calls);
    const frame = frameOf(codec(HeartbeatRequest, version), HEARTBEAT);
    const chunks = (await handler.handleFrame(frame, CONNECTION)) ?? [];
    const reader = new ByteReader(Buffer.concat(chunks).subarray(4));
    assert.equal(readResponseHeader(reader, 12, version), 77);
    const response = codec(HeartbeatResponse, version).read(reader);
    assert.deepEqual([response.errorCode, response.throttleTimeMs], [27, 5]);
    assert.equal(reader.remaining, 0);
    const [request, context] = calls as [HeartbeatRequest, RequestContext];
    assert.equal(request.generationId, 3);
    assert.deepEqual(context, {
      ...CONNECTION,
      apiVersion: version,
      clientId: 'me',
      principal: 'User:ANONYMOUS',
    });
  }
});

test('unknown APIs, unserved versions and malformed requests are unanswerable', async () => {
  const calls: unknown[] = [];
  const handler = handlerOf({ errorCode: 0 }, calls);
  const heartbeat = frameOf(codec(HeartbeatRequest, 2), HEARTBEAT);
  const cases: [what: string, frame: Uint8Array, message: RegExp][] = [
    ['version between', headerOnly(12, 3), /Heartbeat v3 .*client id me.*not served/],
    ['negative version', headerOnly(12, -1), /Heartbeat v-1 .*not served/],
    ['unknown API', headerOnly(9999, 0), /API key 9999 v0 .*not served/],
    ['negative API', headerOnly(-1, 0), /API key -1/],
    ['no header', new Uint8Array(0), /header from 192\.0\.2\.7 cannot be read/],
    ['half a header', heartbeat.subarray(0, 9), /header from 192\.0\.2\.7 cannot be read/],
    ['half a body', heartbeat.subarray(0, -1), /Heartbeat request v2 .*cannot be read/],
  ];
  for (const [what, frame, message] of cases) {
    const served = handler.handleFrame(frame, CONNECTION);
    await assert.rejects(served, (error: Error) => {
      assert.ok(error instanceof UnanswerableRequest, what);
      assert.match(error.message, message);
      return true;
    });
  }
  assert.deepEqual(calls, []);
});

test('an unknown version of ApiVersions is answered in version 0 with the list', async () => {
  for (const version of [5, 99, -1]) {
    const chunks = await handlerOf(undefined).handleFrame(headerOnly(18, version), CONNECTION);
    const reader = new ByteReader(Buffer.concat(chunks ?? []).subarray(4));
    assert.equal(reader.int32(), 77);
    const { errorCode, apiKeys } = codec(ApiVersionsResponse, 0).read(reader);
    assert.equal(errorCode, errors.UNSUPPORTED_VERSION.code);
    assert.deepEqual(apiKeys, LISTED);
    assert.equal(reader.remaining, 0);
  }
  assert.equal(ApiVersionsRequest.versions.max, 4);
});

test('no response and a defect', async () => {
  const frame = frameOf(codec(HeartbeatRequest, 1), HEARTBEAT);
  assert.equal(await handlerOf(NO_RESPONSE).handleFrame(frame, CONNECTION), undefined);
  const failing = handlerOf(Promise.reject(new TypeError('defect')));
  await assert.rejects(failing.handleFrame(frame, CONNECTION), TypeError);
});
