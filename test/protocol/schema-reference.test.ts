/**
 * Our schemas, API keys and error codes against Apache Kafka's own.
 *
 * The jars carry the JSON files that Kafka's classes are generated from. Every schema of ours must
 * equal the file of its name, but for the additions declared below.
 */
import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it } from 'node:test';
import { apiName, isFlexible } from '../../src/protocol/api-keys.ts';
import { errorOf } from '../../src/protocol/errors.ts';
import {
  type FieldSpec,
  type Fields,
  type Message,
  NO_MAX_VERSION,
  parseVersions,
} from '../../src/protocol/schema.ts';
import { interopSkipReason, requireKafkaJars } from '../interop/kafka-jars.ts';
import { allSchemas } from './all-schemas.ts';
import { parseCommentedJson, readJar } from './jar.ts';

const OWN_API_KEYS_FROM = 12790;
const JARS = /^kafka-(clients|metadata|group-coordinator|transaction-coordinator)-[\d.]+\.jar$/;
const JSON_FILES = /^common\/(message|metadata)\/\w+\.json$/;

interface JsonField {
  readonly name: string;
  readonly type: string;
  readonly versions: string;
  readonly nullableVersions?: string;
  readonly tag?: number;
  readonly taggedVersions?: string;
  readonly default?: unknown;
  readonly ignorable?: boolean | string;
  readonly entityType?: string;
  readonly fields?: readonly JsonField[];
}

interface JsonMessage {
  readonly apiKey?: number;
  readonly name: string;
  readonly type: string;
  readonly validVersions: string;
  readonly flexibleVersions: string;
  readonly latestVersionUnstable?: boolean;
  readonly fields: readonly JsonField[];
  readonly commonStructs?: readonly { readonly name: string; readonly fields: JsonField[] }[];
}

function camelCase(name: string): string {
  return name.charAt(0).toLowerCase() + name.slice(1);
}

function defaultInJson(field: JsonField): unknown {
  const text = 'default' in field ? String(field.default) : undefined;
  if (text === 'null' && field.nullableVersions !== undefined) return null;
  if (field.type.startsWith('[]')) return [];
  switch (field.type) {
    case 'string':
      return text ?? '';
    case 'bool':
      return text === 'true';
    case 'uuid':
      return 'AAAAAAAAAAAAAAAAAAAAAA';
    case 'bytes':
      return [];
    case 'records':
      return null;
    case 'int64':
      return BigInt(text ?? 0);
    default:
      return /^[A-Z]/.test(field.type) ? undefined : Number(text ?? 0);
  }
}

function fromJsonField(field: JsonField, message: JsonMessage): object {
  const isArray = field.type.startsWith('[]');
  const type = isArray ? field.type.slice(2) : field.type;
  const common = message.commonStructs?.find((each) => each.name === type);
  const fields = field.fields ?? common?.fields;
  return {
    name: camelCase(field.name),
    type: `${isArray ? '[]' : ''}${/^[A-Z]/.test(type) ? 'struct' : type}`,
    versions: parseVersions(field.versions),
    nullable: parseVersions(field.nullableVersions ?? 'none'),
    tag: field.tag,
    tagged: parseVersions(field.taggedVersions ?? 'none'),
    default: defaultInJson(field),
    explicit: 'default' in field,
    // One file of Kafka's says it with a string.
    ignorable: String(field.ignorable) === 'true',
    fields: fields?.map((inner) => fromJsonField(inner, message)),
  };
}

function fromOurs(name: string, field: FieldSpec): object {
  const type = field.element ?? (field.fields === undefined ? field.kind : 'struct');
  const wire = type === 'int64Exact' ? 'int64' : type;
  const value = field.defaultValue;
  return {
    name,
    type: `${field.kind === 'array' ? '[]' : ''}${wire}`,
    versions: field.versions,
    nullable: field.nullableVersions,
    tag: field.tag,
    tagged: field.taggedVersions,
    default:
      value instanceof Uint8Array
        ? [...value]
        : wire === 'int64' && field.kind !== 'array'
          ? BigInt(value as number)
          : value,
    explicit: field.hasExplicitDefault,
    ignorable: field.ignorable,
    fields: field.fields && Object.entries(field.fields).map(([n, f]) => fromOurs(n, f)),
  };
}

/** Fields of Apache Kafka 4.3 in messages of which the jars know the version before. */
const NEWER: Readonly<Record<string, string>> = {
  BrokerHeartbeatRequest: 'cordonedLogDirs',
  BrokerHeartbeatResponse: '',
  BrokerRegistrationChangeRecord: 'cordonedLogDirs',
  DescribeLogDirsRequest: '',
  DescribeLogDirsResponse: 'results.isCordoned',
  RegisterBrokerRecord: 'cordonedLogDirs',
};

/** The fields without the one at `path`, which must be there; an empty path names none. */
function withoutField(fields: Fields, path: string): Fields {
  if (path === '') return fields;
  const [name = '', ...rest] = path.split('.');
  const { [name]: field, ...others } = fields;
  assert.ok(field !== undefined, path);
  if (rest.length === 0) return others;
  const inner = withoutField((field.fields ?? {}) as Fields, rest.join('.'));
  return { ...fields, [name]: { ...field, fields: inner } };
}

/** Where we go beyond the jars' Kafka: removed here, so that all else is compared. */
function withoutAdditions(message: Message): Message {
  const newer = NEWER[message.name];
  if (newer !== undefined) {
    const versions = { min: message.versions.min, max: message.versions.max - 1 };
    return { ...message, versions, fields: withoutField(message.fields, newer) };
  }
  if (message.name === 'FetchRequest') {
    const { mirrorFetch, ...fields } = message.fields;
    assert.equal(mirrorFetch?.tag, 1279);
    return { ...message, fields };
  }
  // A metadata record has that number, too.
  if (message.apiKey !== 19 || message.type === 'metadata') return message;
  const versions = { min: message.versions.min, max: message.versions.max - 1 };
  const { topics } = message.fields;
  if (message.type === 'response' || topics === undefined) return { ...message, versions };
  const { mirrorInfo, ...rest } = topics.fields ?? {};
  assert.deepEqual(mirrorInfo?.versions, { min: 8, max: NO_MAX_VERSION });
  assert.equal(mirrorInfo.ignorable, true);
  return {
    ...message,
    versions,
    fields: { ...message.fields, topics: { ...topics, fields: rest } },
  };
}

const skip = await interopSkipReason();

async function referenceMessages(): Promise<Map<string, JsonMessage>> {
  const libs = await requireKafkaJars();
  const found = new Map<string, JsonMessage>();
  for (const jar of readdirSync(libs).filter((name) => JARS.test(name))) {
    for (const text of readJar(join(libs, jar), JSON_FILES).values()) {
      const parsed = parseCommentedJson(text) as JsonMessage;
      found.set(parsed.name, parsed);
    }
  }
  return found;
}

const PRINT_ERRORS = `
import org.apache.kafka.common.errors.RetriableException;
import org.apache.kafka.common.protocol.Errors;
public class PrintErrors {
  public static void main(String[] args) {
    for (Errors e : Errors.values()) {
      boolean retriable = e.exception() instanceof RetriableException;
      System.out.println(e.code() + " " + e.name() + " " + retriable);
    }
  }
}`;

describe('schemas against Apache Kafka', { skip }, () => {
  it('every schema equals the JSON file of its name, but for declared additions', async () => {
    const reference = await referenceMessages();
    const ours = await allSchemas();
    const own = ours.filter((each) => (each.apiKey ?? 0) >= OWN_API_KEYS_FROM);
    assert.equal(own.length, 16);
    for (const message of ours.filter((each) => !own.includes(each))) {
      const json = reference.get(message.name);
      assert.ok(json !== undefined, `no reference for ${message.name}`);
      const { fields, ...about } = withoutAdditions(message);
      assert.deepEqual(about, {
        apiKey: json.apiKey,
        name: json.name,
        type: json.type,
        versions: parseVersions(json.validVersions),
        flexibleVersions: parseVersions(json.flexibleVersions),
        latestVersionUnstable: json.latestVersionUnstable === true,
      });
      assert.deepEqual(
        Object.entries(fields).map(([name, field]) => fromOurs(name, field)),
        json.fields.map((field) => fromJsonField(field, json)),
        message.name,
      );
    }
  });

  it('P1: producer ids and whatever may be the largest int64 are exact', async () => {
    const reference = await referenceMessages();
    const wanted = (field: JsonField): boolean =>
      field.type === 'int64' &&
      (field.entityType === 'producerId' || String(field.default) === `${2n ** 63n - 1n}`);
    for (const message of await allSchemas()) {
      const check = (ours: Readonly<Record<string, FieldSpec>>, theirs: readonly JsonField[]) => {
        for (const json of theirs) {
          const field = ours[camelCase(json.name)];
          if (wanted(json)) assert.equal(field?.kind, 'int64Exact', `${message.name} ${json.name}`);
          if (json.fields && field?.fields) check(field.fields, json.fields);
        }
      };
      check(message.fields, reference.get(message.name)?.fields ?? []);
    }
  });

  it('names every API key and knows its first flexible version', async () => {
    for (const json of (await referenceMessages()).values()) {
      if (json.type !== 'request' || json.apiKey === undefined) continue;
      assert.equal(`${apiName(json.apiKey)}Request`, json.name);
      const { min } = parseVersions(json.flexibleVersions ?? 'none');
      if (json.validVersions === 'none') continue;
      assert.equal(isFlexible(json.apiKey, min), json.flexibleVersions !== 'none', json.name);
      if (min > 0) assert.equal(isFlexible(json.apiKey, min - 1), false, json.name);
    }
  });

  it('has the same error codes, names and retriable flags', async () => {
    const libs = await requireKafkaJars();
    const folder = mkdtempSync(join(tmpdir(), 'twinlog-errors-'));
    try {
      const file = join(folder, 'PrintErrors.java');
      writeFileSync(file, PRINT_ERRORS);
      const output = execFileSync('java', ['-cp', join(libs, '*'), file], { encoding: 'utf8' });
      const theirs = output.trim().split('\n');
      const ours = theirs.map((_, i) => errorOf(i - 1));
      assert.deepEqual(
        ours.map((row) => `${row?.code} ${row?.name} ${row?.retriable}`),
        theirs,
      );
      assert.equal(errorOf(theirs.length - 1), undefined);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
