/** SCRAM, by the example of RFC 7677 and by what each side must not believe. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nodeCrypto } from '../../src/io/node/node-crypto.ts';
import {
  ScramClient,
  type ScramCredential,
  ScramError,
  ScramServer,
  scramCredential,
} from '../../src/protocol/scram.ts';

const crypto = nodeCrypto();
const CLIENT_NONCE = 'rOprNGfwEbeRWgbNEkqO';
const SERVER_NONCE = '%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0';
const SALT = Buffer.from('W22ZaJ0SNY7soEsUEjb6gQ==', 'base64');
const SERVER_FIRST = `r=${CLIENT_NONCE}${SERVER_NONCE},s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096`;
const PROOF = 'dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=';
const CLIENT_FINAL = `c=biws,r=${CLIENT_NONCE}${SERVER_NONCE},p=${PROOF}`;
const SERVER_FINAL = 'v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=';
const USER = { username: 'user', password: 'pencil' };

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString('utf8');
const bytes = (value: string): Uint8Array => Buffer.from(value, 'utf8');

function client(user = USER): ScramClient {
  return new ScramClient(crypto, 'sha256', user, CLIENT_NONCE);
}

async function server(of: (user: string) => ScramCredential | undefined): Promise<ScramServer> {
  return new ScramServer(crypto, 'sha256', of, SERVER_NONCE);
}

test('both sides say what RFC 7677 shows', async () => {
  const pencil = await scramCredential(crypto, 'sha256', 'pencil', SALT, 4096);
  const mine = client();
  const theirs = await server((user) => (user === 'user' ? pencil : undefined));
  assert.equal(text(mine.first()), `n,,n=user,r=${CLIENT_NONCE}`);
  assert.equal(text(theirs.first(mine.first())), SERVER_FIRST);
  assert.equal(text(await mine.final(bytes(SERVER_FIRST))), CLIENT_FINAL);
  const { user, message } = theirs.final(bytes(CLIENT_FINAL));
  assert.equal(user, 'user');
  assert.equal(text(message), SERVER_FINAL);
  mine.verify(message);
});

test('SHA-512, and names with signs that SCRAM uses itself', async () => {
  const password = 'pä=ss,word';
  const name = 'a=b,c=2C';
  const kept = await scramCredential(crypto, 'sha512', password, SALT, 8192);
  assert.equal(kept.storedKey.length, 64);
  const mine = new ScramClient(crypto, 'sha512', { username: name, password });
  const theirs = new ScramServer(crypto, 'sha512', (user) => (user === name ? kept : undefined));
  const final = theirs.final(await mine.final(theirs.first(mine.first())));
  assert.equal(final.user, name);
  mine.verify(final.message);
});

test('the server takes no wrong password, no unknown user, no replay', async () => {
  const pencil = await scramCredential(crypto, 'sha256', 'pencil', SALT, 4096);
  const wrong = client({ ...USER, password: 'pen' });
  const theirs = await server(() => pencil);
  const proof = await wrong.final(theirs.first(wrong.first()));
  assert.throws(() => theirs.final(proof), /password is wrong/);
  assert.throws(() => theirs.final(bytes(CLIENT_FINAL)), ScramError, 'one try per exchange');
  const nobody = await server(() => undefined);
  assert.throws(() => nobody.first(client().first()), /no such credential/);
  const other = new ScramServer(crypto, 'sha256', () => pencil);
  other.first(client().first());
  assert.throws(() => other.final(bytes(CLIENT_FINAL)), /another exchange/);
  for (const bad of ['', 'y,,n=user,r=x', 'p=tls-unique,,n=user,r=x', 'n,a=root,n=user,r=x']) {
    assert.throws(() => other.first(bytes(bad)), ScramError, bad);
  }
});

test('the client believes no server without proof, and no weak salt', async () => {
  for (const bad of [
    SERVER_FIRST.replace(CLIENT_NONCE, 'x'),
    SERVER_FIRST.replace(SERVER_NONCE, ''),
    SERVER_FIRST.replace('4096', '4095'),
    SERVER_FIRST.replace('4096', '99999999'),
    `m=ext,${SERVER_FIRST}`,
    'e=other-error',
  ]) {
    await assert.rejects(client().final(bytes(bad)), ScramError, bad);
  }
  const mine = client();
  assert.throws(() => mine.verify(bytes(SERVER_FINAL)), ScramError, 'before the exchange');
  await mine.final(bytes(SERVER_FIRST));
  assert.throws(() => mine.verify(bytes('v=AAAA')), /does not prove/);
  assert.throws(() => mine.verify(bytes('e=invalid-proof')), /invalid-proof/);
});
