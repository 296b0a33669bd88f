/** What a guest forwards: bytes unchanged, under the client's name; what it looks into before. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { BufferPool } from '../../src/base/buffer-pool.ts';
import { ByteReader, ByteWriter } from '../../src/base/bytes.ts';
import type { ControllerPort, ForwardContext } from '../../src/metadata/controller-port.ts';
import { ConfigResourceType } from '../../src/metadata/image.ts';
import { ApiKey } from '../../src/protocol/api-keys.ts';
import { codec } from '../../src/protocol/codec.ts';
import { errors } from '../../src/protocol/errors.ts';
import {
  CreateDelegationTokenRequest,
  CreateDelegationTokenResponse,
} from '../../src/protocol/messages/38-create-delegation-token.ts';
import {
  RenewDelegationTokenRequest,
  RenewDelegationTokenResponse,
} from '../../src/protocol/messages/39-renew-delegation-token.ts';
import {
  IncrementalAlterConfigsRequest,
  IncrementalAlterConfigsResponse,
} from '../../src/protocol/messages/44-incremental-alter-configs.ts';
import { readResponseHeader, writeRequestHeader } from '../../src/protocol/request-header.ts';
import { guestApiTable } from '../../src/server/guest-api-table.ts';
import { forwardedApis } from '../../src/server/guest-handlers/forwarded.ts';
import { RequestHandler } from '../../src/server/request-handler.ts';
import { UnanswerableRequest } from '../../src/server/socket-server.ts';
import { servicesOf } from './call.ts';
import { fakeController } from './fakes.ts';
import { answerBody, askGuest, contextOf, guestVersions } from './guest-call.ts';

type Forwarded = [apiKey: number, version: number, body: string, context: ForwardContext];

/** A controller that answers `answer` and notes what it was sent. */
function forwarding(seen: Forwarded[], answer: Uint8Array): ControllerPort {
  return fakeController({
    forwardRaw: (apiKey, version, body, context) => {
      seen.push([apiKey, version, Buffer.from(body).toString(), context]);
      return Promise.resolve(answer);
    },
  });
}

const CLIENT = { principal: 'User:ANONYMOUS', clientAddress: '192.0.2.7', clientId: 'me' };
const ALTER_CONFIGS = {
  request: IncrementalAlterConfigsRequest,
  response: IncrementalAlterConfigsResponse,
};

test('bodies go to the controller and come back unread, with whom they are from', async () => {
  const looksInto = new Set<number>([
    ApiKey.IncrementalAlterConfigs,
    ApiKey.CreateDelegationToken,
    ApiKey.RenewDelegationToken,
    ApiKey.ExpireDelegationToken,
  ]);
  const blind = forwardedApis.filter(({ apiKey }) => !looksInto.has(apiKey));
  assert.deepEqual(
    blind.map(({ apiKey }) => apiKey).sort((a, b) => a - b),
    [19, 20, 30, 31, 33, 37, 43, 45, 46, 49, 51, 55, 57, 64, 80, 81],
  );
  for (const { apiKey, versions } of blind) {
    const seen: Forwarded[] = [];
    const services = servicesOf({ controller: forwarding(seen, Buffer.from('an answer')) });
    const handler = new RequestHandler(services, guestApiTable, new BufferPool());
    const writer = new ByteWriter();
    const header = { apiKey, apiVersion: versions.max, correlationId: 77, clientId: 'me' };
    writeRequestHeader(writer, header);
    writer.raw(Buffer.from('a body'));
    const connection = { connectionId: 8, listenerName: 'PLAINTEXT', clientHost: '192.0.2.7' };
    const chunks = await handler.handleFrame(writer.toBytes(), connection);
    const frame = Buffer.concat(chunks ?? []);
    assert.equal(frame.readInt32BE(), frame.length - 4);
    const reader = new ByteReader(frame.subarray(4));
    assert.equal(readResponseHeader(reader, apiKey, versions.max), 77);
    assert.equal(Buffer.from(reader.view(reader.remaining)).toString(), 'an answer');
    assert.deepEqual(seen, [[apiKey, versions.max, 'a body', CLIENT]]);
  }
});

test('without a controller the connection ends: the client asks another broker', async () => {
  const controller = fakeController({
    forwardRaw: () => Promise.reject(new Error('no controller answers')),
  });
  const body = new Uint8Array(0);
  await assert.rejects(
    answerBody(ApiKey.CreateTopics, servicesOf({ controller }), body, contextOf(7)),
    (error: Error) => {
      assert.ok(error instanceof UnanswerableRequest);
      assert.match(error.message, /CreateTopics of 192\.0\.2\.7 .*no controller answers/);
      return true;
    },
  );
});

test('IncrementalAlterConfigs: settings of mirrors stay here, all else goes on', async () => {
  const alter = (resourceType: number, resourceName: string) => ({
    resources: [
      {
        resourceType,
        resourceName,
        configs: [{ name: 'a', configOperation: 0, value: 'b' }],
      },
    ],
    validateOnly: false,
  });
  for (const version of guestVersions(ALTER_CONFIGS)) {
    const topics = alter(ConfigResourceType.TOPIC, 't');
    const answer = { throttleTimeMs: 0, responses: [] };
    const response = codec(IncrementalAlterConfigsResponse, version).encodeToBytes(answer);
    const seen: Forwarded[] = [];
    const services = servicesOf({ controller: forwarding(seen, response) });
    await askGuest(ALTER_CONFIGS, version, services, topics);
    const sent = codec(IncrementalAlterConfigsRequest, version).encodeToBytes(topics);
    assert.deepEqual(seen, [[44, version, Buffer.from(sent).toString(), CLIENT]]);

    const decoded: unknown[] = [];
    const mirrorAdmin = fakeController({
      forward: (apiKey, at, request, context) => {
        decoded.push(apiKey, at, (request as IncrementalAlterConfigsRequest).resources[0], context);
        const result = { errorCode: 40, errorMessage: 'no', resourceType: 64, resourceName: 'm' };
        return Promise.resolve({ throttleTimeMs: 0, responses: [result] });
      },
    });
    const mirrors = alter(ConfigResourceType.MIRROR, 'm');
    const adminServices = servicesOf({ guest: { mirrorAdmin } });
    const own = await askGuest(ALTER_CONFIGS, version, adminServices, mirrors);
    assert.equal(own.responses[0]?.errorCode, errors.INVALID_CONFIG.code);
    assert.deepEqual(decoded, [44, version, mirrors.resources[0], CLIENT]);
  }
});

test('delegation tokens: nobody without a name gets one, others are forwarded', async () => {
  const create = {
    request: CreateDelegationTokenRequest,
    response: CreateDelegationTokenResponse,
  };
  const renew = { request: RenewDelegationTokenRequest, response: RenewDelegationTokenResponse };
  const hmac = new Uint8Array([1]);
  for (const version of guestVersions(create)) {
    const wanted = {
      renewers: [],
      maxLifetimeMs: 5,
      ...(version >= 3 ? { ownerPrincipalType: null, ownerPrincipalName: null } : {}),
    };
    const answer = await askGuest(create, version, servicesOf({}), wanted);
    assert.equal(answer.errorCode, errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.code);
  }
  for (const version of guestVersions(renew)) {
    const request = { hmac, renewPeriodMs: 5 };
    const anonymous = await askGuest(renew, version, servicesOf({}), request);
    assert.equal(anonymous.errorCode, errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.code);
    const seen: Forwarded[] = [];
    const given = { errorCode: 0, expiryTimestampMs: 99, throttleTimeMs: 0 };
    const body = codec(RenewDelegationTokenResponse, version).encodeToBytes(given);
    const services = servicesOf({ controller: forwarding(seen, body) });
    const renewed = await askGuest(renew, version, services, request, 'User:alice');
    assert.equal(renewed.expiryTimestampMs, 99);
    assert.deepEqual(
      seen.map(([apiKey, , , { principal }]) => [apiKey, principal]),
      [[39, 'User:alice']],
    );
  }
});
