/**
 * A guest of an Apache Kafka cluster where everybody proves by a certificate who he is: controllers
 * and brokers to the guest and the guest to them, the guest to its source, and clients to the
 * guest. The rights are those that `twinlog guest check` names. TWINLOG_TEST=full only.
 */
import assert from 'node:assert/strict';
import { after, before, test } from 'node:test';
import { CertificateAuthority } from '../io/certificates.ts';
import { grantAll } from './acls.ts';
import { type ClusterSecurity, type KafkaCluster, startKafka } from './apache-kafka.ts';
import { GUEST_ID, startGuest } from './guest.ts';
import { logLength, saidSince, whenSaid } from './guest-faults.ts';
import { memberIds, placement } from './guest-watch.ts';
import { interopSkipReason } from './kafka-jars.ts';
import { awaitState, until } from './mirror-watch.ts';
import { freePort, removeDirectory, temporaryDirectory } from './processes.ts';
import {
  type ClientSettings,
  checkAs,
  createTopic,
  grantChecked,
  guestSettings,
  produce,
  readByJava,
  readFrom,
  settingsFile,
  tlsClient,
  topicsSeen,
  USERS,
  valuesUpTo,
} from './secured.ts';
import type { TwinlogBroker } from './twinlog.ts';

const isFull = process.env.TWINLOG_TEST === 'full';
const skip = isFull ? await interopSkipReason() : 'TWINLOG_TEST=full runs it';
const TOPIC = 'orders';
const MIRROR = 'dc1';
const RECORDS = 50;
const TOPIC_REFUSED = 29;
const REFUSED_TIMEOUT_MS = 5_000;
const RULES = 'RULE:^CN=app-(.*?),.*$/$1/L,DEFAULT';

const directory = temporaryDirectory('guest-certificates');
let authority: CertificateAuthority;
let source: KafkaCluster;
let cluster: KafkaCluster;
let guest: TwinlogBroker;
let guestPort: number;
let security: ClusterSecurity;

const port = (of: KafkaCluster): number => of.brokers[0]?.port ?? 0;

/** The client with a certificate of this subject. */
function client(name: string, subject: string, signer = authority): ClientSettings {
  return tlsClient(authority.file, signer.issue(name, subject).keystore);
}

const grant = (at: KafkaCluster, options: string): Promise<number> =>
  grantAll(port(at), `kafka-acls.sh --add ${options}`);

async function startCertified(): Promise<TwinlogBroker> {
  const plainPort = await freePort();
  const own = guestSettings({ security, port: plainPort, securePort: guestPort });
  const settings = { ...own, 'listener.name.secure.ssl.principal.mapping.rules': RULES };
  return await startGuest({ name: 'certified-guest', cluster, port: plainPort, settings });
}

async function reads(settings: ClientSettings): Promise<true> {
  return await until('the right to read', async () =>
    (await readFrom(guestPort, settings, TOPIC)).errorCode === 0 ? true : undefined,
  );
}

if (skip === false) {
  before(async () => {
    authority = new CertificateAuthority(directory);
    const { keystore } = authority.issue('node', '/CN=node');
    const nodes = { protocol: 'SSL', keystore, truststore: authority.file, users: USERS } as const;
    security = { ...nodes, keystore: authority.issue('guest', '/O=Mirror Lab/CN=guest').keystore };
    guestPort = await freePort();
    source = await startKafka({ name: 'certified-source', security: nodes });
    cluster = await startKafka({ name: 'certified', security: nodes });
    await createTopic(port(source), TOPIC);
    assert.equal(await produce(port(source), TOPIC, RECORDS), 0);
  });
}

after(async () => {
  await guest?.destroy();
  await Promise.all([source?.destroy(), cluster?.destroy()]);
  removeDirectory(directory);
});

test('G34: the check needs a certificate, and names rights by the name in it', {
  skip,
}, async () => {
  const nobody = await checkAs(cluster, settingsFile(directory, tlsClient(authority.file)));
  assert.equal(nobody.code, 1);
  assert.match(nobody.stdout, /alert (bad certificate|certificate required)/);
  assert.match(nobody.stdout, /ssl\.keystore\.location/);
  const own = settingsFile(directory, tlsClient(authority.file, security.keystore));
  await assert.rejects(startCertified(), /does not let this node read .*CLUSTER_ACTION/);
  const printed = await grantChecked(cluster, own);
  assert.match(printed, /--allow-principal 'User:CN=guest,O=Mirror Lab' --operation ClusterAction/);
});

test('G34 G35: it joins and mirrors, by certificates on both sides', { skip }, async () => {
  guest = await startCertified();
  assert.ok((await memberIds(cluster)).includes(GUEST_ID));
  const who = "--allow-principal 'User:CN=mirror,O=Mirror Lab'";
  const topics = `--topic ${TOPIC} --topic __mirror_state`;
  await grant(source, `${who} --operation Read --operation DescribeConfigs ${topics}`);
  const file = settingsFile(directory, client('mirror', '/O=Mirror Lab/CN=mirror'));
  const from = ['--source', source.secureBootstrap, '--source-config', file];
  await guest.mirrors('create', MIRROR, ...from);
  await guest.mirrors('add', MIRROR, TOPIC);
  await awaitState(guest, MIRROR, TOPIC, 'MIRRORING');
});

test('G35: the name in a certificate is who the client is', { skip }, async () => {
  const reader = client('reader', '/O=Mirror Lab/CN=reader');
  assert.deepEqual(await topicsSeen(guestPort, reader), []);
  assert.equal((await readFrom(guestPort, reader, TOPIC)).errorCode, TOPIC_REFUSED);
  const who = "--allow-principal 'User:CN=reader,O=Mirror Lab'";
  await grant(cluster, `${who} --operation Read --topic ${TOPIC} --group '*'`);
  await reads(reader);
  const file = settingsFile(directory, reader);
  const { values, stderr } = await readByJava(guestPort, TOPIC, file, RECORDS);
  assert.deepEqual(values, valuesUpTo(RECORDS), stderr);
});

test('G35: ssl.principal.mapping.rules make a principal of it', { skip }, async () => {
  const mapped = client('mapped', '/O=Mirror Lab/CN=app-Carol');
  assert.equal((await readFrom(guestPort, mapped, TOPIC)).errorCode, TOPIC_REFUSED);
  await grant(cluster, `--allow-principal User:carol --operation Read --topic ${TOPIC}`);
  await reads(mapped);
});

test('G35: without a certificate that the guest trusts there is no way in', { skip }, async () => {
  const other = new CertificateAuthority(`${directory}/other`, 'other');
  const forged = client('forged', '/O=Mirror Lab/CN=reader', other);
  // Java shows no certificate at all where it has none of an authority that is asked for.
  for (const settings of [tlsClient(authority.file), forged]) {
    const from = logLength(guest);
    const file = settingsFile(directory, settings);
    const { values, stderr } = await readByJava(guestPort, TOPIC, file, 1, REFUSED_TIMEOUT_MS);
    assert.deepEqual(values, []);
    assert.match(stderr, /SslAuthenticationException/);
    await whenSaid(guest, 'peer did not return a certificate', from);
  }
  const from = logLength(guest);
  await assert.rejects(readFrom(guestPort, forged, TOPIC));
  await whenSaid(guest, 'certificate of a client is not accepted', from);
  assert.doesNotMatch(saidSince(guest.log, from), /BEGIN|PRIVATE/);
});

test('G24 G34: the failover works with these rights', { skip }, async () => {
  await guest.mirrors('remove', MIRROR, TOPIC);
  assert.equal(await produce(port(cluster), TOPIC, 1), RECORDS);
  const [placed] = await placement(cluster, TOPIC);
  assert.deepEqual([placed?.leader, placed?.replicas], [1, [1]]);
});
