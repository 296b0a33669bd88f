/** ACLs by the rules of Apache Kafka's StandardAuthorizer, one line per rule. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Uuid } from '../../src/base/uuid.ts';
import {
  type Acl,
  AclOperation,
  AclResource,
  Authorizer,
  configuredAuthorizer,
} from '../../src/server/authorizer.ts';
import { BrokerConfig } from '../../src/server/broker-config.ts';
import { principalMapping } from '../../src/server/principal-mapping.ts';

const { ALL, READ, WRITE, CREATE, DESCRIBE, ALTER, DELETE } = AclOperation;
const { DESCRIBE_CONFIGS, ALTER_CONFIGS, CLUSTER_ACTION } = AclOperation;
const { TOPIC, GROUP, CLUSTER } = AclResource;

type Short = readonly [
  permission: 'allow' | 'deny',
  principal: string,
  operation: number,
  /** `name`, `prefix…`, or `*`. */
  pattern: string,
  host?: string,
  type?: number,
];

function aclOf([permission, principal, operation, pattern, host, type]: Short, at: number): Acl {
  const isPrefix = pattern.endsWith('…');
  return {
    id: String(at) as Uuid,
    resourceType: type ?? TOPIC,
    resourceName: isPrefix ? pattern.slice(0, -1) : pattern,
    patternType: isPrefix ? 4 : 3,
    principal: `User:${principal}`,
    host: host ?? '*',
    operation,
    permissionType: permission === 'allow' ? 3 : 2,
  };
}

function authorizer(acls: readonly Short[], allowIfNoAcl = false, superUsers: string[] = []) {
  const map = new Map(acls.map((each, at) => [String(at) as Uuid, aclOf(each, at)]));
  return new Authorizer({ superUsers: new Set(superUsers), allowIfNoAcl, acls: () => map });
}

const from = (user: string, clientHost = '192.0.2.1') => ({
  principal: `User:${user}`,
  clientHost,
});

const RULES: readonly [
  what: string,
  acls: readonly Short[],
  allowed: readonly [number, string][],
  denied: readonly [number, string][],
][] = [
  ['nothing is allowed by default', [], [], [[READ, 't']]],
  ['a literal name is that name', [['allow', 'a', READ, 't']], [[READ, 't']], [[READ, 'tt']]],
  ['a prefix begins names', [['allow', 'a', READ, 't…']], [[READ, 'tt']], [[READ, 'xt']]],
  ['* is every name', [['allow', 'a', READ, '*']], [[READ, 'any']], [[WRITE, 'any']]],
  ['every user', [['allow', '*', READ, 't']], [[READ, 't']], [[CREATE, 't']]],
  ['of another user', [['allow', 'b', READ, 't']], [], [[READ, 't']]],
  ['of another host', [['allow', 'a', READ, 't', '192.0.2.9']], [], [[READ, 't']]],
  ['of this host', [['allow', 'a', READ, 't', '192.0.2.1']], [[READ, 't']], []],
  [
    'ALL includes each',
    [['allow', 'a', ALL, 't']],
    [
      [READ, 't'],
      [ALTER_CONFIGS, 't'],
    ],
    [],
  ],
  [
    'a denial counts before a permission, wherever it is',
    [
      ['allow', 'a', ALL, 't'],
      ['deny', 'a', READ, '*'],
      ['deny', '*', WRITE, 't…'],
    ],
    [[CREATE, 't']],
    [
      [READ, 't'],
      [WRITE, 't'],
    ],
  ],
  ['READ shows', [['allow', 'a', READ, 't']], [[DESCRIBE, 't']], [[DESCRIBE_CONFIGS, 't']]],
  ['WRITE shows', [['allow', 'a', WRITE, 't']], [[DESCRIBE, 't']], [[READ, 't']]],
  ['DELETE shows', [['allow', 'a', DELETE, 't']], [[DESCRIBE, 't']], [[ALTER, 't']]],
  ['ALTER shows', [['allow', 'a', ALTER, 't']], [[DESCRIBE, 't']], [[ALTER_CONFIGS, 't']]],
  ['CREATE shows nothing', [['allow', 'a', CREATE, 't']], [[CREATE, 't']], [[DESCRIBE, 't']]],
  [
    'ALTER_CONFIGS shows configs',
    [['allow', 'a', ALTER_CONFIGS, 't']],
    [[DESCRIBE_CONFIGS, 't']],
    [[DESCRIBE, 't']],
  ],
  [
    'a denied READ does not hide',
    [
      ['allow', 'a', DESCRIBE, 't'],
      ['deny', 'a', READ, 't'],
    ],
    [[DESCRIBE, 't']],
    [[READ, 't']],
  ],
  ['of another type', [['allow', 'a', READ, 't', '*', GROUP]], [], [[READ, 't']]],
];

for (const [what, acls, allowed, denied] of RULES) {
  test(`G35 ACLs: ${what}`, () => {
    const decides = authorizer(acls);
    for (const [operation, name] of allowed) {
      assert.equal(decides.allows(from('a'), operation, TOPIC, name), true, `${operation} ${name}`);
    }
    for (const [operation, name] of denied) {
      assert.equal(
        decides.allows(from('a'), operation, TOPIC, name),
        false,
        `${operation} ${name}`,
      );
    }
  });
}

test('G35 super users, and resources that no ACL is about', () => {
  const acls: Short[] = [
    ['deny', '*', ALL, 't'],
    ['allow', 'b', READ, 'u'],
  ];
  const open = authorizer(acls, true, ['User:root']);
  assert.equal(open.allows(from('root'), WRITE, TOPIC, 't'), true);
  assert.equal(open.allows(from('a'), READ, TOPIC, 'v'), true, 'no ACL at all');
  assert.equal(open.allows(from('a'), READ, TOPIC, 'u'), false, 'there is one, of another');
  assert.equal(open.allowsCluster(from('a'), CLUSTER_ACTION), true);
  assert.equal(authorizer(acls).allowsCluster(from('a'), CLUSTER_ACTION), false);
  const broker: Short = ['allow', 'a', CLUSTER_ACTION, 'kafka-cluster', '*', CLUSTER];
  assert.equal(authorizer([broker]).allowsCluster(from('a'), CLUSTER_ACTION), true);
});

test('G35 whether there may be a topic to write', () => {
  const some = (...acls: Short[]) => authorizer(acls).allowsSome(from('a'), WRITE, TOPIC);
  assert.equal(some(), false);
  assert.equal(some(['allow', 'a', READ, 't']), false);
  assert.equal(some(['allow', 'a', WRITE, 't…']), true);
  assert.equal(some(['allow', 'a', WRITE, 't'], ['deny', 'a', WRITE, 'u']), true);
  assert.equal(some(['allow', 'a', WRITE, 't'], ['deny', 'a', ALL, '*']), false);
});

test('new ACLs count at once', () => {
  let acls: ReadonlyMap<Uuid, Acl> = new Map();
  const decides = new Authorizer({ superUsers: new Set(), allowIfNoAcl: false, acls: () => acls });
  assert.equal(decides.allows(from('a'), READ, TOPIC, 't'), false);
  acls = new Map([['1' as Uuid, aclOf(['allow', 'a', READ, 't'], 1)]]);
  assert.equal(decides.allows(from('a'), READ, TOPIC, 't'), true);
});

test('the authorizer is the one that the settings name', () => {
  const name = 'org.apache.kafka.metadata.authorizer.StandardAuthorizer';
  const made = (settings: Record<string, string>) =>
    configuredAuthorizer(new BrokerConfig(new Map(Object.entries(settings))), () => new Map());
  assert.equal(made({}), undefined);
  assert.throws(() => made({ 'authorizer.class.name': 'com.example.Mine' }), /com\.example\.Mine/);
  const users = 'User:admin; User:CN=broker,O=Org';
  const decides = made({ 'authorizer.class.name': name, 'super.users': users });
  assert.equal(decides?.allowsCluster(from('CN=broker,O=Org'), ALTER), true);
  assert.equal(decides?.allowsCluster(from('eve'), ALTER), false);
});

test('principals from certificates: rules in order, letters, and none that matches', () => {
  const rules = String.raw`RULE:^CN=(.*?),OU=Service(\/s)?.*$/$1/,RULE:^CN=(.*?),.*$/svc-$1/L`;
  const map = principalMapping(rules);
  assert.equal(map('CN=Kafka,OU=Service,O=Org'), 'Kafka');
  assert.equal(map('CN=Kafka,O=Org'), 'svc-kafka');
  assert.equal(map('O=Org'), undefined);
  assert.equal(principalMapping(`${rules},DEFAULT`)('O=Org'), 'O=Org');
  assert.equal(principalMapping('RULE:^(.*)$/$1/U')('cn=a'), 'CN=A');
  assert.throws(() => principalMapping('DEFAULT,RULE:broken'), /RULE:broken begins with no/);
  assert.throws(() => principalMapping('RULE:^(CN/$1/'), /^Error: ssl.principal.mapping.rules: /);
});
