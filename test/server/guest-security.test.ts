/** What a guest shows of ACLs, credentials, tokens and quotas. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { emptyImage } from '../../src/metadata/image.ts';
import { applyRecords } from '../../src/metadata/image-delta.ts';
import { type MetadataRecord, metadataRecord } from '../../src/metadata/record-framing.ts';
import type { SecurityImage } from '../../src/metadata/security-image.ts';
import { placeRecords } from '../../src/metadata/transaction-buffer.ts';
import { errors } from '../../src/protocol/errors.ts';
import {
  DescribeAclsRequest,
  DescribeAclsResponse,
} from '../../src/protocol/messages/29-describe-acls.ts';
import {
  DescribeDelegationTokenRequest,
  DescribeDelegationTokenResponse,
} from '../../src/protocol/messages/41-describe-delegation-token.ts';
import {
  DescribeClientQuotasRequest,
  DescribeClientQuotasResponse,
} from '../../src/protocol/messages/48-describe-client-quotas.ts';
import {
  DescribeUserScramCredentialsRequest,
  DescribeUserScramCredentialsResponse,
} from '../../src/protocol/messages/50-describe-user-scram-credentials.ts';
import { servicesOf } from './call.ts';
import { fakeRuntime, imageOf, ManualClock } from './fakes.ts';
import { askGuest, guestVersions } from './guest-call.ts';

function credential(name: string, mechanism: number, iterations: number): MetadataRecord {
  const secret = new Uint8Array([1, 2, 3]);
  const secrets = { salt: secret, storedKey: secret, serverKey: secret };
  return metadataRecord('UserScramCredentialRecord', { name, mechanism, iterations, ...secrets });
}

function removed(name: string, mechanism: number): MetadataRecord {
  return metadataRecord('RemoveUserScramCredentialRecord', { name, mechanism });
}

type Entity = Readonly<Record<string, string | null>>;

function quota(entity: Entity, key: string, value: number, remove = false): MetadataRecord {
  const parts = Object.entries(entity).map(([entityType, entityName]) => ({
    entityType,
    entityName,
  }));
  return metadataRecord('ClientQuotaRecord', { entity: parts, key, value, remove });
}

/** Those of alice, by mechanism. */
function iterations(credentials: SecurityImage['scramCredentials']): [number, number][] {
  return [...(credentials.get('alice') ?? [])].map(([mechanism, each]) => [
    mechanism,
    each.iterations,
  ]);
}

test('an image keeps what is said last, and shares what a batch does not touch', () => {
  const records = [
    credential('alice', 1, 4096),
    credential('alice', 2, 8192),
    credential('alice', 1, 5000),
    credential('bob', 1, 4096),
    removed('bob', 1),
    quota({ user: 'a', 'client-id': 'c' }, 'producer_byte_rate', 1),
    quota({ 'client-id': 'c', user: 'a' }, 'producer_byte_rate', 2),
    quota({ user: null }, 'request_percentage', 50),
    quota({ user: null }, 'request_percentage', 0, true),
  ];
  const image = imageOf(records);
  const { scramCredentials, clientQuotas } = image.security;
  assert.deepEqual([...scramCredentials.keys()], ['alice']);
  assert.deepEqual(iterations(scramCredentials), [
    [1, 5000],
    [2, 8192],
  ]);
  assert.deepEqual(
    [...clientQuotas.values()].map(({ values }) => [...values]),
    [[['producer_byte_rate', 2]]],
  );
  const next = applyRecords(image, placeRecords([removed('alice', 2)], 9), 9, 1).image;
  assert.deepEqual(iterations(next.security.scramCredentials), [[1, 5000]]);
  assert.equal(next.security.clientQuotas, clientQuotas);
  assert.equal(scramCredentials.get('alice')?.size, 2);
  const other = metadataRecord('NoOpRecord', {});
  assert.equal(applyRecords(next, placeRecords([other], 10), 10, 1).image.security, next.security);
  assert.equal(emptyImage('c').security.clientQuotas.size, 0);
});

const DescribeAcls = { request: DescribeAclsRequest, response: DescribeAclsResponse };
const ANY_ACL = {
  resourceTypeFilter: 1,
  resourceNameFilter: null,
  principalFilter: null,
  hostFilter: null,
  operation: 1,
  permissionType: 1,
};

test('ACLs are what the active controller says, or REQUEST_TIMED_OUT', async () => {
  const runtime = fakeRuntime(new ManualClock());
  for (const version of guestVersions(DescribeAcls)) {
    const asked: unknown[] = [];
    const disabled = { errorCode: errors.SECURITY_DISABLED.code, errorMessage: 'none here' };
    const guest = {
      askController: (request: unknown, _response: unknown, value: DescribeAclsRequest) => {
        asked.push(request, value.resourceTypeFilter);
        return Promise.resolve({ throttleTimeMs: 0, ...disabled, resources: [] });
      },
    };
    const answer = await askGuest(DescribeAcls, version, servicesOf({ guest, runtime }), ANY_ACL);
    assert.deepEqual([answer.errorCode, answer.errorMessage], [54, 'none here']);
    assert.deepEqual(asked, [DescribeAclsRequest, 1]);
  }
  const guest = { askController: () => Promise.reject(new Error('nobody')) };
  const answer = await askGuest(DescribeAcls, 3, servicesOf({ guest, runtime }), ANY_ACL);
  assert.deepEqual(
    [answer.errorCode, answer.errorMessage, answer.resources],
    [errors.REQUEST_TIMED_OUT.code, 'nobody', []],
  );
});

test('SCRAM credentials: all, or those asked for, each once', async () => {
  const api = {
    request: DescribeUserScramCredentialsRequest,
    response: DescribeUserScramCredentialsResponse,
  };
  const image = imageOf([credential('alice', 2, 8192), credential('bob', 1, 4096)]);
  const describe = async (users: string[] | null) => {
    const wanted = users?.map((name) => ({ name })) ?? null;
    const answer = await askGuest(api, 0, servicesOf({ image }), { users: wanted });
    assert.equal(answer.errorCode, 0);
    return answer.results.map(({ user, errorCode, credentialInfos: [first] }) => [
      user,
      errorCode,
      first?.mechanism,
      first?.iterations,
    ]);
  };
  const bob = ['bob', 0, 1, 4096];
  assert.deepEqual(await describe(null), [['alice', 0, 2, 8192], bob]);
  assert.deepEqual(await describe([]), [['alice', 0, 2, 8192], bob]);
  assert.deepEqual(await describe(['bob', 'carol', 'dan', 'dan']), [
    bob,
    ['carol', errors.RESOURCE_NOT_FOUND.code, undefined, undefined],
    ['dan', errors.DUPLICATE_RESOURCE.code, undefined, undefined],
  ]);
});

test('delegation tokens are not known to a guest', async () => {
  const api = {
    request: DescribeDelegationTokenRequest,
    response: DescribeDelegationTokenResponse,
  };
  for (const version of guestVersions(api)) {
    const codeFor = async (principal: string) => {
      const answer = await askGuest(api, version, servicesOf({}), { owners: null }, principal);
      return answer.errorCode;
    };
    const { DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, DELEGATION_TOKEN_AUTH_DISABLED } = errors;
    assert.equal(await codeFor('User:ANONYMOUS'), DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.code);
    assert.equal(await codeFor('User:alice'), DELEGATION_TOKEN_AUTH_DISABLED.code);
  }
});

const DescribeClientQuotas = {
  request: DescribeClientQuotasRequest,
  response: DescribeClientQuotasResponse,
};
type Filter = [entityType: string, matchType: number, match?: string];

const QUOTAS = imageOf([
  quota({ user: 'a' }, 'producer_byte_rate', 1),
  quota({ user: 'a', 'client-id': 'c' }, 'producer_byte_rate', 2),
  quota({ user: null }, 'consumer_byte_rate', 3),
  quota({ ip: '192.0.2.1' }, 'connection_creation_rate', 4.5),
]);

async function quotas(filters: Filter[], strict = false, version = 1) {
  const components = filters.map(([entityType, matchType, match = null]) => ({
    entityType,
    matchType,
    match,
  }));
  const services = servicesOf({ image: QUOTAS });
  const answer = await askGuest(DescribeClientQuotas, version, services, { components, strict });
  return answer.entries?.map(({ values }) => values[0]?.value) ?? answer.errorCode;
}

test('client quotas: exact, default and any matches; strict leaves out further types', async () => {
  for (const version of guestVersions(DescribeClientQuotas)) {
    assert.deepEqual(await quotas([], false, version), [1, 2, 3, 4.5]);
    assert.deepEqual(await quotas([['user', 0, 'a']], false, version), [1, 2]);
    assert.deepEqual(await quotas([['user', 0, 'a']], true, version), [1]);
    assert.deepEqual(await quotas([['user', 1]], false, version), [3]);
    assert.deepEqual(await quotas([['user', 2]], false, version), [1, 2, 3]);
    const both: Filter[] = [
      ['user', 2],
      ['client-id', 0, 'c'],
    ];
    assert.deepEqual(await quotas(both, true, version), [2]);
    assert.deepEqual(await quotas([], true, version), []);
  }
});

test('client quotas: a filter that makes no sense is refused', async () => {
  const invalid = errors.INVALID_REQUEST.code;
  assert.equal(await quotas([['', 2]]), invalid);
  assert.equal(await quotas([['user', 3]]), invalid);
  assert.equal(await quotas([['user', 0]]), invalid);
  assert.equal(await quotas([['user', 1, 'a']]), invalid);
  assert.equal(
    await quotas([
      ['user', 2],
      ['user', 1],
    ]),
    invalid,
  );
  assert.equal(
    await quotas([
      ['ip', 2],
      ['user', 2],
    ]),
    invalid,
  );
  assert.equal(await quotas([['planet', 2]]), errors.UNSUPPORTED_VERSION.code);
});
