/**
 * Listeners that authenticate, over real sockets with the client side of this product: who gets in
 * by which mechanism, who does not, and what may be asked before.
 */
import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { createConnection, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { setTimeout as sleep } from 'node:timers/promises';
import { BufferPool } from '../../src/base/buffer-pool.ts';
import { silentLogger } from '../../src/base/logger.ts';
import { nodeRuntime } from '../../src/io/node/node-runtime.ts';
import { codec } from '../../src/protocol/codec.ts';
import type { ConnectionSecurity, SaslMechanism } from '../../src/protocol/connection-security.ts';
import { encodeRequestFrame } from '../../src/protocol/frame.ts';
import { ConnectionError, KafkaConnection } from '../../src/protocol/kafka-connection.ts';
import { HeartbeatRequest, HeartbeatResponse } from '../../src/protocol/messages/12-heartbeat.ts';
import {
  SaslHandshakeRequest,
  SaslHandshakeResponse,
} from '../../src/protocol/messages/17-sasl-handshake.ts';
import type { EncodableOf, Message } from '../../src/protocol/schema.ts';
import { SCRAM_HASHES, scramCredential } from '../../src/protocol/scram.ts';
import { apiHandler, type BrokerServices, listed } from '../../src/server/api-handler.ts';
import { BrokerConfig } from '../../src/server/broker-config.ts';
import { saslHandshake } from '../../src/server/handlers/17-sasl-handshake.ts';
import { apiVersions } from '../../src/server/handlers/18-api-versions.ts';
import { saslAuthenticate } from '../../src/server/handlers/36-sasl-authenticate.ts';
import { listenerSecurity } from '../../src/server/listener-security.ts';
import { RequestHandler } from '../../src/server/request-handler.ts';
import { SocketServer } from '../../src/server/socket-server.ts';
import { CertificateAuthority } from '../io/certificates.ts';

const runtime = nodeRuntime({ logger: silentLogger });
const directory = mkdtempSync(join(tmpdir(), 'twinlog-session-'));
const authority = new CertificateAuthority(directory);
const server = authority.issue('server', '/CN=server');
const alice = authority.issue('alice', '/O=Org/CN=alice');
const SALT = Buffer.from('salt and pepper');
const SECRETS: Readonly<Record<string, string>> = {
  alice: 'alice-secret',
  'b,o=b': 'bob"s;secret',
};

const SETTINGS = {
  'ssl.keystore.type': 'PEM',
  'ssl.keystore.location': server.keystore,
  'ssl.truststore.type': 'PEM',
  'ssl.truststore.location': authority.file,
  'sasl.enabled.mechanisms': 'PLAIN,SCRAM-SHA-256,SCRAM-SHA-512',
  'listener.name.sasl_plaintext.plain.sasl.jaas.config':
    'x.PlainLoginModule required user_alice="alice-secret" user_empty="";',
  'listener.name.sasl_ssl.sasl.enabled.mechanisms': 'SCRAM-SHA-512',
  'listener.name.sasl_ssl.connections.max.reauth.ms': '600',
  'listener.name.ssl.ssl.client.auth': 'required',
  'listener.name.ssl.ssl.principal.mapping.rules': 'RULE:^CN=([^,]+),.*$/$1/U,DEFAULT',
  'connection.failed.authentication.delay.ms': '150',
};

/** Answers who asks, where other brokers would say something about a group. */
const whoAmI = apiHandler({
  request: HeartbeatRequest,
  response: HeartbeatResponse,
  versions: '0-4',
  handle: (_services, _request, { principal }) => {
    seen.push(principal);
    return { errorCode: 0, throttleTimeMs: 0 };
  },
});
const seen: string[] = [];

const handlers = [whoAmI, apiVersions, saslHandshake, saslAuthenticate];
const credentials = new Map<string, Awaited<ReturnType<typeof scramCredential>>>();
for (const [mechanism, hash] of Object.entries(SCRAM_HASHES)) {
  for (const [user, secret] of Object.entries(SECRETS)) {
    const kept = await scramCredential(runtime.crypto, hash, secret, SALT, 4096);
    credentials.set(`${mechanism} ${user}`, kept);
  }
}

const config = new BrokerConfig(new Map(Object.entries(SETTINGS)));
const services = {
  listedApis: listed(handlers),
  metadata: { image: { offset: 1, features: new Map() } },
} as unknown as BrokerServices;
const buffers = new BufferPool();
const table = new Map(handlers.map((handler) => [handler.apiKey, handler]));
const requests = new RequestHandler(services, table, buffers);
const sockets = new SocketServer(runtime, {
  maxRequestBytes: 10_000_000,
  maxIdleMs: -1,
  buffers,
  connectionClosed: () => {},
  handleFrame: (frame, context) => requests.handleFrame(frame, context),
  securityOf: (listener) => ({
    runtime,
    security: listenerSecurity(config, runtime.disk, listener),
    scramCredential: (mechanism, user) => credentials.get(`${mechanism} ${user}`),
  }),
});

const ports = new Map<string, number>();
for (const name of ['PLAINTEXT', 'SSL', 'SASL_PLAINTEXT', 'SASL_SSL']) {
  const { port } = await sockets.listen({ name, host: '127.0.0.1', port: 0 });
  ports.set(name, port);
}
after(async () => {
  await sockets.close();
  rmSync(directory, { recursive: true });
});

const tls = { trusted: authority.certificate, checkHostName: true };

function dial(listener: string, security?: ConnectionSecurity): Promise<KafkaConnection> {
  const address = { host: '127.0.0.1', port: ports.get(listener) ?? 0, clientId: 'c' };
  return KafkaConnection.connect(runtime, { ...address, security });
}

const HEARTBEAT = { groupId: 'g', generationId: 1, memberId: 'm' };

/** Whom the listener takes the client for. */
async function principal(listener: string, security?: ConnectionSecurity): Promise<string> {
  const connection = await dial(listener, security);
  await connection.send(HeartbeatRequest, HeartbeatResponse, HEARTBEAT);
  connection.close();
  return seen.pop() ?? '';
}

function sasl(mechanism: SaslMechanism, username: string, password = SECRETS[username] ?? '') {
  return { sasl: { mechanism, username, password } };
}

async function refusal(listener: string, security?: ConnectionSecurity): Promise<ConnectionError> {
  try {
    await principal(listener, security);
  } catch (error) {
    assert.ok(error instanceof ConnectionError);
    assert.doesNotMatch(error.message, /secret|wrong-one/);
    return error;
  }
  throw new Error('the client got in');
}

test('each mechanism lets in who knows the password', async () => {
  assert.equal(await principal('PLAINTEXT'), 'User:ANONYMOUS');
  assert.equal(await principal('SASL_PLAINTEXT', sasl('PLAIN', 'alice')), 'User:alice');
  for (const user of Object.keys(SECRETS)) {
    for (const mechanism of ['SCRAM-SHA-256', 'SCRAM-SHA-512'] as const) {
      const got = await principal('SASL_PLAINTEXT', sasl(mechanism, user));
      assert.equal(got, `User:${user}`, mechanism);
    }
  }
  const secured = { tls, ...sasl('SCRAM-SHA-512', 'alice') };
  assert.equal(await principal('SASL_SSL', secured), 'User:alice');
});

test('A5: a certificate gives a principal by the mapping rules', async () => {
  assert.equal(await principal('SSL', { tls: { ...tls, identity: alice } }), 'User:ALICE');
  const without = await refusal('SSL', { tls });
  assert.match(without.cause, /^(authentication|closed|ECONNRESET)$/);
});

test('who does not know the password is told late, and has to go', async () => {
  for (const mechanism of ['PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512'] as const) {
    for (const [user, password] of [
      ['alice', 'wrong-one'],
      ['alice', ''],
      ['nobody', 'wrong-one'],
      ['nobody', ''],
    ] as const) {
      const started = runtime.clock.monotonicMs();
      const error = await refusal('SASL_PLAINTEXT', sasl(mechanism, user, password));
      assert.equal(error.cause, 'authentication', `${mechanism} ${user}`);
      assert.match(error.message, /SASL_AUTHENTICATION_FAILED/);
      assert.ok(runtime.clock.monotonicMs() - started >= 140, 'guessing is slow');
    }
  }
  const disabled = await refusal('SASL_SSL', { tls, ...sasl('PLAIN', 'alice') });
  assert.match(disabled.message, /does not take PLAIN, it takes SCRAM-SHA-512/);
  const plain = await refusal('PLAINTEXT', sasl('PLAIN', 'alice'));
  assert.match(plain.message, /the listener has no SASL/);
});

test('before it authenticates a client may ask for versions, nothing else', async () => {
  const connection = await dial('SASL_PLAINTEXT');
  assert.ok(connection.apis.has(17) && connection.apis.has(36));
  await assert.rejects(connection.send(HeartbeatRequest, HeartbeatResponse, HEARTBEAT), {
    cause: 'closed',
  });
  assert.equal(seen.length, 0);
  const large = createConnection(ports.get('SASL_PLAINTEXT') ?? 0, '127.0.0.1');
  const size = Buffer.alloc(4);
  size.writeInt32BE(600 * 1024);
  large.write(size);
  await once(large.resume(), 'close');
});

/** The next frame on the socket, without its length. */
async function nextFrame(socket: Socket): Promise<Buffer> {
  for (;;) {
    const size: Buffer | null = socket.read(4);
    if (size !== null) {
      const length = size.readInt32BE(0);
      while (socket.readableLength < length) await once(socket, 'readable');
      return length === 0 ? Buffer.alloc(0) : socket.read(length);
    }
    await once(socket, 'readable');
  }
}

test('old clients send their tokens without a header after SaslHandshake 0', async () => {
  const header = { correlationId: 7, clientId: 'old' };
  const raw = (token: string): Buffer => {
    const size = Buffer.alloc(4);
    size.writeInt32BE(Buffer.byteLength(token));
    return Buffer.concat([size, Buffer.from(token)]);
  };
  const frame = <M extends Message>(request: M, version: number, value: EncodableOf<M>): Buffer =>
    Buffer.concat(encodeRequestFrame(header, codec(request, version), value));
  const opened = async (token: string): Promise<Socket> => {
    const socket = createConnection(ports.get('SASL_PLAINTEXT') ?? 0, '127.0.0.1');
    socket.write(frame(SaslHandshakeRequest, 0, { mechanism: 'PLAIN' }));
    const answer = await nextFrame(socket);
    assert.deepEqual([answer.readInt32BE(0), answer.readInt16BE(4)], [7, 0]);
    socket.write(raw(token));
    return socket;
  };
  const socket = await opened('\0alice\0alice-secret');
  assert.equal((await nextFrame(socket)).length, 0);
  socket.write(frame(HeartbeatRequest, 0, HEARTBEAT));
  await nextFrame(socket);
  assert.equal(seen.pop(), 'User:alice');
  socket.destroy();
  const refused = await opened('\0alice\0wrong');
  await once(refused.resume(), 'close');
});

test('who is authenticated cannot begin again where it lasts for ever', async () => {
  const connection = await dial('SASL_PLAINTEXT', sasl('PLAIN', 'alice'));
  const again = { mechanism: 'PLAIN' };
  const answer = await connection.send(SaslHandshakeRequest, SaslHandshakeResponse, again);
  assert.equal(answer.errorCode, 34);
  connection.close();
});

test('a session that runs out is given up between two requests, and dialled anew', async () => {
  const security = { tls, ...sasl('SCRAM-SHA-512', 'alice') };
  const ended = Promise.withResolvers<ConnectionError>();
  const connection = await KafkaConnection.connect(runtime, {
    host: '127.0.0.1',
    port: ports.get('SASL_SSL') ?? 0,
    clientId: 'c',
    security,
    onClosed: (error) => ended.resolve(error),
  });
  await connection.send(HeartbeatRequest, HeartbeatResponse, HEARTBEAT);
  assert.match((await ended.promise).message, /authentication is over/);
  assert.notEqual(connection.ended, undefined);
  assert.equal(await principal('SASL_SSL', security), 'User:alice');
  seen.length = 0;
});

test('a client that stays beyond its session is cut off', async () => {
  const stubborn = {
    ...runtime,
    clock: { ...runtime.clock, setTimer: () => ({ cancel: () => {} }) },
  };
  const connection = await KafkaConnection.connect(stubborn, {
    host: '127.0.0.1',
    port: ports.get('SASL_SSL') ?? 0,
    clientId: 'c',
    security: { tls, ...sasl('SCRAM-SHA-512', 'alice') },
  });
  await connection.send(HeartbeatRequest, HeartbeatResponse, HEARTBEAT);
  await sleep(700);
  await assert.rejects(connection.send(HeartbeatRequest, HeartbeatResponse, HEARTBEAT), {
    cause: 'closed',
  });
  assert.deepEqual(seen.splice(0), ['User:alice']);
});
