/**
 * A guest of an Apache Kafka cluster where everything is secured: SASL_SSL everywhere, the standard
 * authorizer, and a guest that has the rights that `twinlog guest check` names, no more. It mirrors
 * from a secured source, keeps strangers out by the cluster's ACLs, and fails over.
 */
import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { after, before, test } from 'node:test';
import { FetchRequest, FetchResponse } from '../../src/protocol/messages/01-fetch.ts';
import {
  DescribeConfigsRequest,
  DescribeConfigsResponse,
} from '../../src/protocol/messages/32-describe-configs.ts';
import {
  AddTopicsToMirrorRequest,
  AddTopicsToMirrorResponse,
} from '../../src/protocol/messages/12791-add-topics-to-mirror.ts';
import {
  ListMirrorsRequest,
  ListMirrorsResponse,
} from '../../src/protocol/messages/12794-list-mirrors.ts';
import { CertificateAuthority } from '../io/certificates.ts';
import { grantAll } from './acls.ts';
import { type ClusterSecurity, type KafkaCluster, startKafka } from './apache-kafka.ts';
import { startGuest } from './guest.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { awaitState, until } from './mirror-watch.ts';
import { freePort, removeDirectory, temporaryDirectory } from './processes.ts';
import {
  connected,
  createTopic,
  grantChecked,
  guestSettings,
  produce,
  readByJava,
  readFrom,
  saslClient,
  settingsFile,
  topicsSeen,
  USERS,
  type User,
  valuesUpTo,
} from './secured.ts';
import { runTwinlog, type TwinlogBroker, twinlogCommand } from './twinlog.ts';

const skip = await interopSkipReason();
const TOPIC = 'orders';
const MIRROR = 'dc1';
const RECORDS = 50;
const TOPIC_REFUSED = 29;
const CLUSTER_REFUSED = 31;

const directory = temporaryDirectory('guest-secured');
let security: ClusterSecurity;
let source: KafkaCluster;
let cluster: KafkaCluster;
let guest: TwinlogBroker;
let guestPort: number;

const client = (user: User) => saslClient(security, user);

function clientFile(user: User, mechanism?: 'PLAIN' | 'SCRAM-SHA-512', password?: string): string {
  return settingsFile(directory, saslClient(security, user, mechanism, password));
}

if (skip === false) {
  before(async () => {
    const authority = new CertificateAuthority(directory);
    const { keystore } = authority.issue('node', '/CN=node');
    security = { keystore, truststore: authority.file, users: USERS };
    guestPort = await freePort();
    source = await startKafka({ name: 'secured-source', security });
    cluster = await startKafka({ name: 'secured', security });
    const port = source.brokers[0]?.port;
    await createTopic(port, TOPIC);
    assert.equal(await produce(port, TOPIC, RECORDS), 0);
  });
}

after(async () => {
  await guest?.destroy();
  await Promise.all([source?.destroy(), cluster?.destroy()]);
  removeDirectory(directory);
});

test('G34: the check names the rights that are missing, and they are enough', {
  skip,
}, async () => {
  const printed = await grantChecked(
    cluster,
    clientFile('guest', 'PLAIN'),
    '--principal',
    'User:guest',
  );
  assert.doesNotMatch(printed, /hush/);
});

test('A5 A6: a mirror of a secured source, made by who may', { skip }, async () => {
  const port = await freePort();
  const settings = guestSettings({ security, port, securePort: guestPort });
  guest = await startGuest({ name: 'guest', cluster, port, settings });
  const at = ['--bootstrap-server', `127.0.0.1:${guestPort}`];
  const from = ['--source', source.secureBootstrap];
  const create = (name: string, user: User, file: string) =>
    runTwinlog([
      ...['mirrors', 'create', name, ...from, '--source-config', file],
      ...[...at, '--command-config', clientFile(user)],
    ]);
  const wrong = await create(MIRROR, 'admin', clientFile('reader', 'PLAIN', 'wrong-hush'));
  assert.match(wrong.stderr, /SASL_AUTHENTICATION_FAILED/);
  assert.doesNotMatch(wrong.stderr, /hush/);
  const stranger = await create(MIRROR, 'alice', clientFile('admin'));
  assert.match(stranger.stderr, /CLUSTER_AUTHORIZATION_FAILED/);
  const made = await create(MIRROR, 'admin', clientFile('admin'));
  assert.equal(made.code, 0, made.stderr);
  const admin = ['--command-config', clientFile('admin', 'PLAIN')];
  await twinlogCommand('mirrors', 'add', MIRROR, TOPIC, ...at, ...admin);
  await awaitState(guest, MIRROR, TOPIC, 'MIRRORING');
  await until('all records', async () =>
    (await readFrom(guestPort, client('admin'), TOPIC)).bytes > RECORDS * 70 ? true : undefined,
  );
  const described = await connected(guestPort, client('admin'), (connection) =>
    connection.send(DescribeConfigsRequest, DescribeConfigsResponse, {
      resources: [{ resourceType: 64, resourceName: MIRROR, configurationKeys: null }],
    }),
  );
  const shown = new Map(described.results[0]?.configs.map(({ name, value }) => [name, value]));
  assert.equal(shown.get('security.protocol'), 'SASL_SSL');
  assert.equal(shown.get('sasl.jaas.config'), null);
  assert.doesNotMatch(JSON.stringify([...shown]), /hush|BEGIN CERT/);
});

test("G35: strangers are kept out by the cluster's ACLs", { skip }, async () => {
  assert.deepEqual(await topicsSeen(guestPort, client('alice')), []);
  assert.equal((await readFrom(guestPort, client('alice'), TOPIC)).errorCode, TOPIC_REFUSED);
  await connected(guestPort, client('alice'), async (connection) => {
    const { errorCode } = await connection.send(ListMirrorsRequest, ListMirrorsResponse, {});
    assert.equal(errorCode, CLUSTER_REFUSED);
    const added = await connection.send(AddTopicsToMirrorRequest, AddTopicsToMirrorResponse, {
      topics: [],
    });
    assert.equal(added.errorCode, CLUSTER_REFUSED);
    const replica = await connection.send(FetchRequest, FetchResponse, {
      replicaState: { replicaId: 1, replicaEpoch: 1 },
      maxWaitMs: 0,
      minBytes: 0,
      topics: [],
      forgottenTopicsData: [],
    });
    assert.equal(replica.errorCode, CLUSTER_REFUSED);
  });
  const reader = `--allow-principal User:reader --operation Read --topic ${TOPIC}`;
  await grantAll(cluster.brokers[0]?.port ?? 0, `kafka-acls.sh --add ${reader} --group '*'`);
  await until('the right to read', async () =>
    (await readFrom(guestPort, client('reader'), TOPIC)).errorCode === 0 ? true : undefined,
  );
  assert.deepEqual(await topicsSeen(guestPort, client('reader')), [TOPIC]);
});

test('G21 G35: a Java client reads by SASL_SSL through the guest', { skip }, async () => {
  const { values, stderr } = await readByJava(guestPort, TOPIC, clientFile('reader'), RECORDS);
  assert.deepEqual(values, valuesUpTo(RECORDS), stderr);
});

test('G24 G34: the failover works with these rights', { skip }, async () => {
  const at = ['--bootstrap-server', `127.0.0.1:${guestPort}`];
  const admin = ['--command-config', clientFile('admin')];
  await twinlogCommand('mirrors', 'remove', MIRROR, TOPIC, ...at, ...admin);
  assert.equal(await produce(cluster.brokers[0]?.port, TOPIC, 1), RECORDS);
  await guest.stop();
  assert.doesNotMatch(readFileSync(guest.log, 'utf8'), /hush|BEGIN|PRIVATE/);
});
