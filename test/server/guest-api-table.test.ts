/**
 * A guest's API table: against the list of Apache Kafka's brokers, and what it answers as a whole.
 */
import assert from 'node:assert/strict';
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { ApiKey, apiName } from '../../src/protocol/api-keys.ts';
import { codec } from '../../src/protocol/codec.ts';
import { errors } from '../../src/protocol/errors.ts';
import { parseVersions } from '../../src/protocol/schema.ts';
import { guestApisWith, guestApiTable, guestListedApis } from '../../src/server/guest-api-table.ts';
import { coordinatorApis } from '../../src/server/guest-handlers/coordinators.ts';
import { interopSkipReason, requireKafkaJars } from '../interop/kafka-jars.ts';
import { parseCommentedJson, readJar } from '../protocol/jar.ts';
import { servicesOf } from './call.ts';
import { uuidOf } from './fakes.ts';
import { answerBody, contextOf } from './guest-call.ts';
import { sampleRequest } from './sample-request.ts';

const FIRST_OWN_KEY = 12790;
/** Telemetry has no receiver; brokers ask share coordinators. */
const LEFT_OUT = new Set<number>([
  ApiKey.GetTelemetrySubscriptions,
  ApiKey.PushTelemetry,
  ApiKey.InitializeShareGroupState,
  ApiKey.ReadShareGroupState,
  ApiKey.WriteShareGroupState,
  ApiKey.DeleteShareGroupState,
  ApiKey.ReadShareGroupStateSummary,
]);

interface RequestJson {
  readonly apiKey: number;
  readonly validVersions: string;
  readonly listeners?: readonly string[];
  readonly latestVersionUnstable?: boolean;
}

async function kafkaBrokerApis(): Promise<[number, string][]> {
  const libs = await requireKafkaJars();
  const jar = readdirSync(libs).find((name) => /^kafka-clients-[\d.]+\.jar$/.test(name)) ?? '';
  const files = readJar(join(libs, jar), /^common\/message\/\w+Request\.json$/);
  return [...files.values()]
    .map((text) => parseCommentedJson(text) as RequestJson)
    .filter(({ listeners }) => listeners?.includes('broker') === true)
    .filter(({ validVersions, apiKey }) => validVersions !== 'none' && !LEFT_OUT.has(apiKey))
    .map(({ apiKey, validVersions, latestVersionUnstable }): [number, string] => {
      const { min, max } = parseVersions(validVersions);
      return [apiKey, `${min}-${latestVersionUnstable === true ? max - 1 : max}`];
    })
    .sort(([a], [b]) => a - b);
}

test('a guest offers what a 4.2 broker does, in the same versions, and one newer', {
  skip: await interopSkipReason(),
}, async () => {
  const newer = new Map([[ApiKey.DescribeLogDirs as number, '1-5']]);
  const theirs = (await kafkaBrokerApis()).map(([key, range]) => [key, newer.get(key) ?? range]);
  const ours = guestListedApis
    .filter(({ apiKey }) => apiKey < FIRST_OWN_KEY)
    .map(({ apiKey, minVersion, maxVersion }) => [apiKey, `${minVersion}-${maxVersion}`]);
  assert.deepEqual(ours, theirs);
});

test('the list is in the order of the keys, without the mirror states of embedded brokers', () => {
  const keys = guestListedApis.map(({ apiKey }) => apiKey);
  assert.deepEqual(
    keys,
    [...guestApiTable.keys()].sort((a, b) => a - b),
  );
  assert.deepEqual(
    keys.filter((key) => key >= FIRST_OWN_KEY),
    [12790, 12791, 12792, 12793, 12794, 12795],
  );
});

test('of what is forwarded, only what the controller knows too is offered', () => {
  const offered = guestApisWith([
    { apiKey: ApiKey.CreateTopics, minVersion: 5, maxVersion: 9 },
    { apiKey: ApiKey.AddRaftVoter, minVersion: 0, maxVersion: 0 },
    { apiKey: ApiKey.UpdateFeatures, minVersion: 3, maxVersion: 4 },
  ]);
  const of = (key: number) => offered.filter(({ apiKey }) => apiKey === key);
  assert.deepEqual(of(ApiKey.CreateTopics), [{ apiKey: 19, minVersion: 5, maxVersion: 7 }]);
  assert.deepEqual(of(ApiKey.AddRaftVoter), [{ apiKey: 80, minVersion: 0, maxVersion: 0 }]);
  assert.deepEqual(of(ApiKey.UpdateFeatures), []);
  assert.deepEqual(of(ApiKey.DeleteTopics), []);
  assert.deepEqual(of(ApiKey.Fetch), [{ apiKey: 1, minVersion: 4, maxVersion: 18 }]);
});

/** All error codes in an answer, by the name of their field. */
function errorCodes(value: unknown, name = ''): [string, number][] {
  if (Array.isArray(value)) return value.flatMap((each) => errorCodes(each, name));
  if (typeof value === 'object' && value !== null && !(value instanceof Uint8Array)) {
    return Object.entries(value).flatMap(([key, each]) => errorCodes(each, key));
  }
  return /errorCode$/i.test(name) ? [[name, value as number]] : [];
}

const SUBJECT = {
  topic: 't',
  topicId: uuidOf(1),
  group: 'g',
  records: () => new Uint8Array(0),
};

test('G9: every coordinator API is answered NOT_COORDINATOR in every version', async () => {
  assert.equal(coordinatorApis.length, 14);
  for (const { apiKey, request, response, versions } of coordinatorApis) {
    for (let version = versions.min; version <= versions.max; version++) {
      const body = codec(request, version).encodeToBytes(sampleRequest(request, version, SUBJECT));
      const answer = await answerBody(apiKey, servicesOf({}), body, contextOf(version));
      const codes = errorCodes(codec(response, version).decode(answer));
      // The first level of a batched AddPartitionsToTxn speaks of the request as a whole.
      const isBatch = apiKey === ApiKey.AddPartitionsToTxn;
      const meant = isBatch ? codes.filter(([name]) => name !== 'errorCode') : codes;
      assert.ok(meant.length > 0, `${apiName(apiKey)} ${version}`);
      for (const [, code] of meant) assert.equal(code, errors.NOT_COORDINATOR.code);
    }
  }
});
