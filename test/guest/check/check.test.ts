/**
 * `guest check` where no real cluster of these tests is: other versions, secured clusters, and
 * clusters that lack something. What it says of a real one: test/interop/guest-commands.test.ts.
 */
import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import type { Check } from '../../../src/guest/check/check.ts';
import { checkControllers } from '../../../src/guest/check/check-controllers.ts';
import {
  type ClusterFeatures,
  checkFeatures,
  checkOldGuests,
} from '../../../src/guest/check/check-features.ts';
import {
  checkInternalTopics,
  checkMembers,
  checkMirrorState,
  checkNodeId,
  checkStrays,
} from '../../../src/guest/check/check-image.ts';
import { ANONYMOUS, checkRights } from '../../../src/guest/check/check-rights.ts';
import { guestSupportedFeatures } from '../../../src/metadata/features.ts';
import type { FeatureRange, MetadataImage } from '../../../src/metadata/image.ts';
import { ConfigResourceType } from '../../../src/metadata/image.ts';
import { codec } from '../../../src/protocol/codec.ts';
import { encodeResponseFrame } from '../../../src/protocol/frame.ts';
import { KafkaConnection } from '../../../src/protocol/kafka-connection.ts';
import { ProduceResponse } from '../../../src/protocol/messages/00-produce.ts';
import { FetchResponse } from '../../../src/protocol/messages/01-fetch.ts';
import { OffsetCommitResponse } from '../../../src/protocol/messages/08-offset-commit.ts';
import { CreateTopicsResponse } from '../../../src/protocol/messages/19-create-topics.ts';
import { EndTxnResponse } from '../../../src/protocol/messages/26-end-txn.ts';
import { DescribeAclsResponse } from '../../../src/protocol/messages/29-describe-acls.ts';
import * as configsApi from '../../../src/protocol/messages/44-incremental-alter-configs.ts';
import * as reassignApi from '../../../src/protocol/messages/45-alter-partition-reassignments.ts';
import { AlterPartitionResponse } from '../../../src/protocol/messages/56-alter-partition.ts';
import { DescribeClusterResponse } from '../../../src/protocol/messages/60-describe-cluster.ts';
import type { EncodableOf, Message } from '../../../src/protocol/schema.ts';
import { featuresUpTo } from '../../metadata/features-up-to.ts';
import {
  broker,
  config,
  feature,
  id,
  imageOf,
  testRuntime,
  topic,
} from '../../metadata/harness.ts';
import { networkTo, Peer } from '../../protocol/kafka-peer.ts';

const GUEST = 201;
const HEARTBEAT = 63;
const guestFlag = config(ConfigResourceType.BROKER, String(GUEST), 'twinlog.guest', 'true');
const BROKERS = [broker(1), broker(2), broker(3)];

function cluster(...records: Parameters<typeof imageOf>[0]): MetadataImage {
  return imageOf([...BROKERS, ...records]);
}

function verdict(check: Check | undefined): string {
  return `${check?.status}: ${check?.found}`;
}

/** A cluster whose controllers support metadata.versions from 7 on. */
function metadataVersion(level: number, max: number): ClusterFeatures {
  return {
    levels: new Map([['metadata.version', level]]),
    supported: new Map([['metadata.version', { min: 7, max }]]),
  };
}

describe('features (G3)', () => {
  const only = (level: number, max: number): Check => {
    const checks = checkFeatures(metadataVersion(level, max), guestSupportedFeatures);
    const [check] = checks.filter(({ name }) => name === 'feature metadata.version');
    assert.ok(check !== undefined);
    return check;
  };

  test('a level within both ranges is fine, and both are told', () => {
    const check = only(29, 29);
    assert.equal(
      verdict(check),
      'ok: its level is 29; a guest supports 7–33, the controllers 7–29',
    );
    assert.deepEqual(check.data, {
      level: 29,
      guest: { min: 7, max: 33 },
      controllers: { min: 7, max: 29 },
    });
  });

  test('levels that the guest would keep the cluster from are named', () => {
    const check = only(33, 36);
    assert.equal(check.status, 'warning');
    assert.match(String(check.fix), /refuses to upgrade to 34–36/);
    assert.match(String(check.fix), /Upgrades to 33 or less go on with them/);
    assert.match(String(only(33, 34).fix), /refuses to upgrade to 34:/);
  });

  test('a level that a guest does not support keeps it out', () => {
    const check = only(34, 36);
    assert.equal(
      verdict(check),
      'problem: its level is 34; a guest supports 7–33, the controllers 7–36',
    );
    assert.match(String(check.fix), /use a twinlog that supports level 34 of metadata\.version/);
    const { supported } = metadataVersion(29, 29);
    const levels = new Map([['future.version', 1]]);
    const checks = checkFeatures({ levels, supported }, guestSupportedFeatures);
    const future = checks.find(({ name }) => name === 'feature future.version');
    assert.equal(verdict(future), 'problem: its level is 1; a guest supports 0');
  });

  test('a guest of an older twinlog keeps features lower than this one would', () => {
    const find = (features: readonly FeatureRange[], max: number): Check[] => {
      const registered = cluster(broker(GUEST, { features }), guestFlag);
      return checkOldGuests(registered, metadataVersion(29, max), guestSupportedFeatures);
    };
    assert.deepEqual(find(guestSupportedFeatures, 33), []);
    assert.deepEqual(find(guestSupportedFeatures, 36), []);
    assert.deepEqual(find(featuresUpTo(29), 29), []);
    const [check, ...others] = find(featuresUpTo(29), 36);
    assert.equal(verdict(check), 'warning: it supports only metadata.version 7–29');
    assert.match(String(check?.fix), /refuses to upgrade metadata\.version to 30–33: before/);
    assert.match(String(check?.fix), /twinlog guest leave --node-id 201/);
    assert.deepEqual(others, []);
  });

  test('an old level in a new cluster is not what was tested', () => {
    assert.equal(only(25, 29).status, 'warning');
    assert.equal(only(26, 29).status, 'ok');
  });
});

describe('members and ids (G11)', () => {
  const find = (nodeId: number | undefined, ...records: Parameters<typeof imageOf>[0]) =>
    checkNodeId(cluster(...records), [100], nodeId);

  test('an id must be nobody else', () => {
    assert.equal(verdict(find(GUEST)), 'ok: 201 is free');
    assert.equal(verdict(find(100)), "problem: 100 is a controller's");
    assert.equal(verdict(find(2)), "problem: 2 is a broker's");
    assert.match(String(find(2).fix), /--node-id 101/);
    assert.equal(verdict(find(undefined)), 'ok: none was given; 101 is free');
  });

  test('the id of a guest is free once it has left', () => {
    const running = find(GUEST, broker(GUEST), guestFlag);
    assert.equal(verdict(running), "problem: 201 is a running guest's");
    const stopped = find(GUEST, broker(GUEST, { fenced: true }), guestFlag);
    assert.equal(verdict(stopped), 'warning: 201 is that of a guest that does not run');
    assert.match(String(stopped.fix), /twinlog guest leave --node-id 201/);
  });

  test('who is there is told, and who does not run', () => {
    assert.equal(verdict(checkMembers(cluster())), 'ok: 3 (1, 2, 3); no guest yet');
    const one = imageOf([broker(1), broker(2, { fenced: true }), broker(GUEST), guestFlag]);
    assert.equal(verdict(checkMembers(one)), 'warning: 2 (1, 2); guests: 201; not running: 2');
    assert.equal(checkMembers(imageOf([])).status, 'problem');
  });
});

describe('foreign partitions and internal topics (G7, G8)', () => {
  const cordoned = new Map([[HEARTBEAT, 2]]);
  const internal = (image: MetadataImage, apis = new Map<number, number>()) =>
    checkInternalTopics(image, apis, 'h:9092').map(({ status }) => status);

  test('before 4.3 internal topics should be there first', () => {
    const image = cluster(feature('metadata.version', 29));
    assert.match(checkStrays(image, cordoned).found, /it is 29/);
    assert.deepEqual(internal(image, cordoned), ['warning', 'warning', 'ok']);
    const share = cluster(feature('share.version', 1));
    assert.deepEqual(internal(share), ['warning', 'warning', 'warning']);
    const [first] = checkInternalTopics(image, new Map(), 'h:9092');
    assert.match(String(first?.fix), /kafka-consumer-groups\.sh --bootstrap-server h:9092/);
  });

  test('from 4.3 on nothing strays, if controllers and level both know of cordons', () => {
    const image = cluster(feature('metadata.version', 30), feature('share.version', 1));
    assert.match(checkStrays(image, cordoned).found, /cordoned/);
    assert.deepEqual(internal(image, cordoned), ['ok', 'ok', 'ok']);
    assert.deepEqual(internal(image, new Map([[HEARTBEAT, 1]])).slice(0, 2), [
      'warning',
      'warning',
    ]);
  });

  test('partitions that strayed are counted', () => {
    const strayed = topic('__consumer_offsets', id(7), [1, 2], [GUEST, 2]);
    const [first] = checkInternalTopics(
      cluster(broker(GUEST), guestFlag, ...strayed),
      new Map(),
      'h:9092',
    );
    assert.equal(verdict(first), 'warning: 1 of its 2 partitions are on a guest');
  });
});

describe('the mirror state (G22)', () => {
  const STATE = '__mirror_state';
  const compact = config(ConfigResourceType.TOPIC, STATE, 'cleanup.policy', 'compact');
  const minIsr = (value: string) =>
    config(ConfigResourceType.TOPIC, STATE, 'min.insync.replicas', value);
  const state = (...records: Parameters<typeof imageOf>[0]): string =>
    verdict(checkMirrorState(cluster(broker(GUEST), guestFlag, ...records)));

  test('a safe one, and none yet', () => {
    assert.equal(state(), 'ok: the first mirror makes it, with 3 replicas');
    const made = topic(STATE, id(8), [1, 2, 3]);
    const found = '1 partitions, 3 replicas, min.insync.replicas 2';
    assert.equal(state(...made, compact, minIsr('2')), `ok: ${found}`);
  });

  test('what endangers rows', () => {
    const onGuest = topic(STATE, id(8), [1, 2, GUEST]);
    assert.match(state(...onGuest, compact), /^problem: 1 of its partitions have a replica on a g/);
    const made = topic(STATE, id(8), [1, 2, 3]);
    assert.match(state(...made, minIsr('2')), /^problem: .*cleanup\.policy is the cluster's$/);
    assert.match(state(...made, compact), /^warning: .*min\.insync\.replicas 1$/);
    const narrow = topic(STATE, id(8), [1]);
    assert.match(state(...narrow, compact, minIsr('1')), /^warning: 1 partitions, 1 replicas/);
    assert.match(state(...narrow, compact, minIsr('2')), /^problem: 1 of its 1 partitions have f/);
  });
});

describe('what the given addresses are', () => {
  const ask = async (apis: Peer['apis']): Promise<string[]> => {
    const peer = new Peer();
    peer.apis = [...apis, [18, 0, 4]];
    const runtime = { ...testRuntime(), network: networkTo(peer) };
    const { checks, found } = await checkControllers(runtime, [{ host: 'h', port: 1 }]);
    assert.equal(found, undefined);
    assert.equal(peer.isClosed, true);
    return checks.map(verdict);
  };

  test('a listener for clients, a cluster of ZooKeeper, an old one', async () => {
    assert.deepEqual(await ask([[3, 0, 12]]), [
      'problem: it is a listener for clients, not for controllers',
    ]);
    assert.deepEqual(await ask([[4, 0, 7]]), [
      'problem: it is a broker of a cluster that is run by ZooKeeper',
    ]);
    assert.deepEqual(await ask([[62, 0, 4]]), [
      'problem: it is older than Apache Kafka 4.1 (its newest metadata.version is 0)',
    ]);
  });

  test('G34: one that does not describe its cluster leaves the rights to be tried', async () => {
    const peer = new Peer();
    peer.apis = [
      [18, 0, 4],
      [60, 0, 1],
      [62, 0, 4],
    ];
    peer.supported = [{ name: 'metadata.version', minVersion: 7, maxVersion: 29 }];
    peer.onRequest = ({ apiKey, apiVersion, correlationId }) => {
      if (apiKey !== 60) return undefined;
      const body = { throttleTimeMs: 0, errorCode: 31, clusterId: '', brokers: [] };
      return encodeResponseFrame(correlationId, codec(DescribeClusterResponse, apiVersion), body);
    };
    const runtime = { ...testRuntime(), network: networkTo(peer) };
    const answer = await checkControllers(runtime, [{ host: 'h', port: 1 }]);
    assert.deepEqual(answer, { checks: [], denied: { host: 'h', port: 1 } });
  });

  test('nobody, or one that speaks TLS', async () => {
    const failing = async (cause: string): Promise<Check | undefined> => {
      const network = networkTo({ cause, message: 'as told' });
      const runtime = { ...testRuntime(), network };
      return (await checkControllers(runtime, [{ host: 'h', port: 1 }])).checks[0];
    };
    assert.match(String((await failing('ECONNREFUSED'))?.fix), /no firewall/);
    assert.match(String((await failing('closed'))?.fix), /TLS or SASL/);
  });
});

type Answer = readonly [response: Message, value: EncodableOf<Message>];

/** A node whose answers are these, by API key. */
async function node(answers: Readonly<Record<number, Answer>>): Promise<KafkaConnection> {
  const peer = new Peer();
  peer.apis = [...Object.keys(answers).map((key): Peer['apis'][number] => [Number(key), 0, 12])];
  peer.onRequest = ({ apiKey, apiVersion, correlationId }) => {
    const answer = answers[apiKey];
    if (answer === undefined) return undefined;
    return encodeResponseFrame(correlationId, codec(answer[0], apiVersion), answer[1]);
  };
  const runtime = { ...testRuntime(), network: networkTo(peer) };
  return await KafkaConnection.connect(runtime, { host: 'h', port: 1, clientId: 'c' });
}

interface Errors {
  readonly clusterAction?: number;
  readonly alter?: number;
  readonly create?: number;
  readonly configs?: number;
  readonly transactionalId?: number;
  readonly write?: number;
  readonly read?: number;
  readonly groups?: number;
  readonly acls?: EncodableOf<typeof DescribeAclsResponse>;
}

const NO_AUTHORIZER = { throttleTimeMs: 0, errorCode: 54, errorMessage: null, resources: [] };

/** What is found of a cluster that answers these errors. */
async function rights(wish: Errors, principal = 'User:guest'): Promise<Map<string, Check>> {
  const none = { throttleTimeMs: 0 };
  const configs = { errorCode: wish.configs ?? 102, errorMessage: null };
  const created = { name: 'x', topicId: id(1), errorMessage: null, configs: [] };
  const controller = await node({
    56: [AlterPartitionResponse, { ...none, errorCode: wish.clusterAction ?? 77, topics: [] }],
    45: [
      reassignApi.AlterPartitionReassignmentsResponse,
      { ...none, errorCode: wish.alter ?? 0, errorMessage: null, responses: [] },
    ],
    19: [CreateTopicsResponse, { ...none, topics: [{ ...created, errorCode: wish.create ?? 0 }] }],
    44: [
      configsApi.IncrementalAlterConfigsResponse,
      { ...none, responses: [{ ...configs, resourceType: 4, resourceName: '' }] },
    ],
    29: [DescribeAclsResponse, wish.acls ?? NO_AUTHORIZER],
  } as unknown as Readonly<Record<number, Answer>>);
  const partition = { partitionIndex: 0, errorCode: wish.groups ?? 3 };
  const denied = { index: 0, errorCode: wish.write ?? 3, baseOffset: -1, recordErrors: [] };
  const read = { partitionIndex: 0, errorCode: wish.read ?? 3, highWatermark: 0, records: null };
  const member = await node({
    0: [ProduceResponse, { ...none, responses: [{ name: 's', partitionResponses: [denied] }] }],
    1: [FetchResponse, { ...none, errorCode: 0, responses: [{ topic: 's', partitions: [read] }] }],
    26: [EndTxnResponse, { ...none, errorCode: wish.transactionalId ?? 49 }],
    8: [OffsetCommitResponse, { ...none, topics: [{ name: 'x', partitions: [partition] }] }],
  } as unknown as Readonly<Record<number, Answer>>);
  const question = { controller, broker: member, principal, nodeId: GUEST };
  const checks = await checkRights({ ...question, acls: '--bootstrap-server h:1' });
  return new Map(checks.map((check) => [check.name, check]));
}

function acl(principal: string, operation: number, permissionType = 3) {
  return { principal, host: '*', operation, permissionType };
}

describe('rights (G34)', () => {
  test('whatever else is wrong with a request, it is allowed', async () => {
    const found = await rights({});
    const statuses = [...found.values()].map(({ status }) => status);
    assert.deepEqual(statuses, [...Array(8).fill('ok'), 'warning']);
    assert.match(String(found.get('who may write __mirror_state')?.found), /no authorizer/);
  });

  test('what is missing comes with the command that grants it', async () => {
    const found = await rights({
      clusterAction: 31,
      alter: 31,
      create: 29,
      configs: 31,
      read: 29,
      transactionalId: 53,
      groups: 30,
    });
    const fixes = [...found.values()].map(({ status, fix }) => `${status} ${fix}`);
    const grant = 'kafka-acls.sh --bootstrap-server h:1 --add --allow-principal User:guest';
    assert.deepEqual(fixes.slice(0, 8), [
      `problem ${grant} --operation ClusterAction --cluster`,
      `problem ${grant} --operation Alter --cluster`,
      `problem ${grant} --operation Create --cluster`,
      `problem ${grant} --operation AlterConfigs --cluster`,
      `problem ${grant} --operation AlterConfigs --topic '*'`,
      `problem ${grant} --operation Read --operation Write --topic __mirror_state`,
      `problem ${grant} --operation Write --operation Describe --resource-pattern-type prefixed ` +
        '--transactional-id twinlog-mirror-state-',
      `warning ${grant} --operation Read --operation Describe --group '*' --topic '*'`,
    ]);
    const [first] = found.values();
    assert.match(String(first?.found), /^User:guest lacks it, so the guest cannot be a broker/);
  });

  test('a name from a certificate is printed as a shell takes it', async () => {
    const [first] = (await rights({ clusterAction: 31 }, "User:CN=it's,O=A B")).values();
    assert.match(String(first?.fix), /--allow-principal 'User:CN=it'\\''s,O=A B' --operation/);
  });

  test('G22: nobody but guests may write the mirror state', async () => {
    const writers = async (...acls: ReturnType<typeof acl>[]): Promise<string> => {
      const resource = { resourceType: 2, resourceName: '*', patternType: 3, acls };
      const answer = { throttleTimeMs: 0, errorCode: 0, errorMessage: null };
      const found = await rights({ acls: { ...answer, resources: [resource] } });
      return verdict(found.get('who may write __mirror_state'));
    };
    const only = 'ok: only the guests, and super users';
    assert.equal(await writers(), only);
    assert.equal(await writers(acl('User:guest', 4), acl('User:app', 3)), only);
    assert.equal(
      await writers(acl('User:app', 4), acl('User:ops', 2)),
      'problem: User:app (Write), User:ops (All)',
    );
    const denied = [acl('User:app', 4, 2), acl('User:app', 6, 2)];
    assert.equal(await writers(acl('User:app', 2), ...denied), only);
    assert.notEqual(await writers(acl('User:app', 2), acl('User:app', 4, 2)), only);
    assert.equal(ANONYMOUS, 'User:ANONYMOUS');
  });
});
