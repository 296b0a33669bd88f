/** TLS on the loopback interface: who is accepted, who is not, and what passes through. */
import assert from 'node:assert/strict';
import { createPrivateKey } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, test } from 'node:test';
import { silentLogger } from '../../src/base/logger.ts';
import { nodeNetwork } from '../../src/io/node/node-network.ts';
import { distinguishedName } from '../../src/io/node/node-tls.ts';
import type {
  CloseReason,
  Connection,
  Listener,
  TlsClientOptions,
  TlsServerOptions,
} from '../../src/io/runtime.ts';
import { CertificateAuthority } from './certificates.ts';

const directory = mkdtempSync(join(tmpdir(), 'twinlog-tls-'));
after(() => rmSync(directory, { recursive: true }));

const authority = new CertificateAuthority(join(directory, 'own'));
const stranger = new CertificateAuthority(join(directory, 'other'), 'other');
const server = authority.issue('server', '/CN=server');
const alice = authority.issue('alice', '/C=AT/O=Org\\, Ltd/OU=Ops/CN=alice');
const mallory = stranger.issue('mallory', '/CN=alice');
const elsewhere = authority.issue('elsewhere', '/CN=elsewhere', 'DNS:elsewhere.example');

/** What is said of clients that do not come in. */
const said: { readonly message: string; readonly fields: object | undefined }[] = [];
const network = nodeNetwork({
  ...silentLogger,
  info: (message, fields) => said.push({ message, fields }),
});
const TRUSTING: TlsClientOptions = { trusted: authority.certificate, checkHostName: true };
const BYTES = 3 * 1024 * 1024;

/** What one end hears. */
class Ear {
  readonly chunks: Uint8Array[] = [];
  readonly closed = Promise.withResolvers<CloseReason>();
  readonly enough = Promise.withResolvers<Uint8Array>();
  readonly #buffer = new Uint8Array(64 * 1024);
  readonly #wanted: number;
  #length = 0;

  constructor(connection: Connection, wanted: number) {
    this.#wanted = wanted;
    connection.start({
      receiveBuffer: () => this.#buffer,
      received: (length) => this.#take(length),
      writable: () => {},
      closed: (reason) => this.closed.resolve(reason),
    });
  }

  #take(length: number): void {
    this.chunks.push(this.#buffer.slice(0, length));
    this.#length += length;
    if (this.#length >= this.#wanted) this.enough.resolve(Buffer.concat(this.chunks));
  }
}

/** A listener, and the connections it accepted. */
async function listen(tls: Partial<TlsServerOptions> = {}) {
  const accepted: Connection[] = [];
  const first = Promise.withResolvers<Connection>();
  const options: TlsServerOptions = {
    identity: server,
    trusted: authority.certificate,
    clientAuth: 'none',
    ...tls,
  };
  const onConnection = (connection: Connection): void => {
    accepted.push(connection);
    first.resolve(connection);
  };
  const listener = await network.listen('127.0.0.1', 0, onConnection, options);
  return { listener, accepted, first: first.promise };
}

function dial({ port }: Listener, tls: TlsClientOptions = TRUSTING, host = '127.0.0.1') {
  return network.connect(host, port, 5_000, tls);
}

function connected(answer: Connection | CloseReason): Connection {
  assert.ok(!('cause' in answer), JSON.stringify(answer));
  return answer;
}

function refused(answer: Connection | CloseReason): CloseReason {
  assert.ok('cause' in answer, 'a connection came to be');
  return answer;
}

test('bytes pass whole and in order, both ways', async () => {
  const { listener, first } = await listen();
  const client = connected(await dial(listener));
  const sent = Buffer.alloc(BYTES, 'twin');
  const atServer = new Ear(await first, BYTES);
  const atClient = new Ear(client, BYTES);
  client.write([sent.subarray(0, 5), sent.subarray(5)]);
  const heard = await atServer.enough.promise;
  assert.deepEqual(heard, sent);
  (await first).write([heard]);
  assert.deepEqual(await atClient.enough.promise, sent);
  assert.equal((await first).peerSubject, undefined);
  client.close();
  assert.equal((await atServer.closed.promise).cause, 'closed');
  await listener.close();
});

test('a server that the client does not trust, or with another name, is refused', async () => {
  const { listener, accepted } = await listen();
  const distrusting = { ...TRUSTING, trusted: stranger.certificate };
  assert.equal(refused(await dial(listener, distrusting)).cause, 'authentication');
  const other = await listen({ identity: elsewhere });
  const reason = refused(await dial(other.listener));
  assert.equal(reason.cause, 'authentication');
  assert.match(reason.message, /127\.0\.0\.1/);
  const client = connected(await dial(other.listener, { ...TRUSTING, checkHostName: false }));
  client.close();
  connected(await dial(listener, TRUSTING, 'localhost')).close();
  assert.equal(accepted.length <= 1, true, 'the refused one was given to nobody');
  await listener.close();
  await other.listener.close();
});

test('A5: a client certificate gives its subject in the order of RFC 2253', async () => {
  const { listener, first } = await listen({ clientAuth: 'required' });
  const client = connected(await dial(listener, { ...TRUSTING, identity: alice }));
  assert.equal((await first).peerSubject, 'CN=alice,OU=Ops,O=Org\\, Ltd,C=AT');
  client.close();
  await listener.close();
});

test('without a certificate that must be shown there is no connection', async () => {
  said.length = 0;
  for (const identity of [undefined, mallory]) {
    const { listener, accepted } = await listen({ clientAuth: 'required' });
    // In TLS 1.3 the client is through before the server has looked.
    const answer = await dial(listener, { ...TRUSTING, identity });
    const reason = 'cause' in answer ? answer : await new Ear(answer, 1).closed.promise;
    assert.match(reason.cause, /^(authentication|ECONNRESET|closed)$/);
    assert.deepEqual(accepted, []);
    await listener.close();
  }
  const client = '127.0.0.1';
  const error = 'SELF_SIGNED_CERT_IN_CHAIN';
  assert.deepEqual(said, [
    {
      message: 'TLS handshake of a client failed',
      fields: { client, error: 'peer did not return a certificate' },
    },
    {
      message: 'certificate of a client is not accepted',
      fields: { error },
    },
  ]);
});

test('a certificate that is wished for may be missing, but not be wrong', async () => {
  const { listener, first, accepted } = await listen({ clientAuth: 'requested' });
  const client = connected(await dial(listener));
  assert.equal((await first).peerSubject, undefined);
  client.close();
  const answer = connected(await dial(listener, { ...TRUSTING, identity: mallory }));
  assert.match((await new Ear(answer, 1).closed.promise).cause, /^(closed|ECONNRESET)$/);
  assert.equal(accepted.length, 1);
  await listener.close();
});

test('a key may be encrypted; its password must be right', async () => {
  const { listener, first } = await listen({ clientAuth: 'required' });
  const cipher = { cipher: 'aes-256-cbc', passphrase: 'hunter2' };
  const key = String(
    createPrivateKey(alice.key).export({ type: 'pkcs8', format: 'pem', ...cipher }),
  );
  assert.match(key, /BEGIN ENCRYPTED PRIVATE KEY/);
  const identity = { certificateChain: alice.certificateChain, key };
  for (const keyPassword of [undefined, 'wrong']) {
    const reason = refused(
      await dial(listener, { ...TRUSTING, identity: { ...identity, keyPassword } }),
    );
    assert.equal(reason.cause, 'authentication');
    assert.doesNotMatch(reason.message, /wrong|hunter2/);
  }
  const right = { ...identity, keyPassword: 'hunter2' };
  const client = connected(await dial(listener, { ...TRUSTING, identity: right }));
  assert.match((await first).peerSubject ?? '', /^CN=alice/);
  client.close();
  await listener.close();
});

test('TLS towards a plain listener, and what is no PEM, are answers', async () => {
  const plain = await network.listen('127.0.0.1', 0, (accepted) => {
    new Ear(accepted, 1).enough.promise.then(() => accepted.write([Buffer.from('no TLS at all')]));
  });
  const reason = refused(await network.connect('127.0.0.1', plain.port, 5_000, TRUSTING));
  assert.equal(reason.cause, 'authentication');
  await plain.close();
  const broken = { certificateChain: server.certificateChain, key: 'no key: secret' };
  const answer = refused(await dial(plain, { ...TRUSTING, identity: broken }));
  assert.equal(answer.cause, 'authentication');
  assert.doesNotMatch(answer.message, /secret/);
  const options = { identity: broken, clientAuth: 'none' } as const;
  await assert.rejects(network.listen('127.0.0.1', 0, () => {}, options));
});

test('e-mail addresses in subjects are written as Java writes them', () => {
  const lines = 'C=AT\nCN=bob\nemailAddress=b@x.at';
  assert.equal(distinguishedName(lines), '1.2.840.113549.1.9.1=#16066240782e6174,CN=bob,C=AT');
});
