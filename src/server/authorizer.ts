/**
 * Decides by the cluster's ACLs what a client may do, as Apache Kafka's StandardAuthorizer does.
 *
 * Used where a guest answers clients itself; what it forwards, controllers authorise. A denial that
 * matches counts before every permission. Where no ACL is about a resource at all,
 * `allow.everyone.if.no.acl.found` counts; super users may do everything.
 */
import type { Uuid } from '../base/uuid.ts';
import type { AccessControlEntryRecord } from '../metadata/records/security-records.ts';
import type { BrokerConfig } from './broker-config.ts';
import { STANDARD_AUTHORIZER } from './security-settings.ts';

/** Kafka's AclOperation codes. */
export const AclOperation = {
  ALL: 2,
  READ: 3,
  WRITE: 4,
  CREATE: 5,
  DELETE: 6,
  ALTER: 7,
  DESCRIBE: 8,
  CLUSTER_ACTION: 9,
  DESCRIBE_CONFIGS: 10,
  ALTER_CONFIGS: 11,
  IDEMPOTENT_WRITE: 12,
} as const;

/** Kafka's ResourceType codes. */
export const AclResource = { TOPIC: 2, GROUP: 3, CLUSTER: 4, TRANSACTIONAL_ID: 5 } as const;
/** The one resource of type CLUSTER. */
const CLUSTER_NAME = 'kafka-cluster';

const LITERAL = 3;
const PREFIXED = 4;
const DENY = 2;
const EVERY_NAME = '*';
const EVERY_USER = 'User:*';
const EVERY_HOST = '*';

/** What else a permission includes. */
const IMPLYING: ReadonlyMap<number, readonly number[]> = new Map([
  [
    AclOperation.DESCRIBE,
    [AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER],
  ],
  [AclOperation.DESCRIBE_CONFIGS, [AclOperation.ALTER_CONFIGS]],
]);

/** Who asks. */
export interface AclClient {
  readonly principal: string;
  readonly clientHost: string;
}

/** An ACL of the cluster. */
export type Acl = AccessControlEntryRecord;

/** ACLs of one resource type, by how their names match. */
interface Patterns {
  readonly literal: Map<string, Acl[]>;
  readonly prefixed: Map<string, Acl[]>;
}

function add(map: Map<string, Acl[]>, acl: Acl): void {
  const list = map.get(acl.resourceName);
  if (list === undefined) map.set(acl.resourceName, [acl]);
  else list.push(acl);
}

function indexed(acls: Iterable<Acl>): ReadonlyMap<number, Patterns> {
  const index = new Map<number, Patterns>();
  for (const acl of acls) {
    const patterns = index.get(acl.resourceType) ?? { literal: new Map(), prefixed: new Map() };
    index.set(acl.resourceType, patterns);
    if (acl.patternType === LITERAL) add(patterns.literal, acl);
    else if (acl.patternType === PREFIXED) add(patterns.prefixed, acl);
  }
  return index;
}

function isAbout({ principal, host }: Acl, client: AclClient): boolean {
  const isUser = principal === client.principal || principal === EVERY_USER;
  return isUser && (host === client.clientHost || host === EVERY_HOST);
}

function concerns(acl: Acl, operation: number): boolean {
  if (acl.operation === AclOperation.ALL || acl.operation === operation) return true;
  return acl.permissionType !== DENY && (IMPLYING.get(operation) ?? []).includes(acl.operation);
}

/** What an authorizer goes by. */
export interface AuthorizerOptions {
  readonly superUsers: ReadonlySet<string>;
  readonly allowIfNoAcl: boolean;
  /** As the cluster has them now; the same map until they change. */
  readonly acls: () => ReadonlyMap<Uuid, Acl>;
}

/** See the file header. */
export class Authorizer {
  readonly #options: AuthorizerOptions;
  #acls: ReadonlyMap<Uuid, Acl> | undefined;
  #index: ReadonlyMap<number, Patterns> = new Map();

  constructor(options: AuthorizerOptions) {
    this.#options = options;
  }

  /** Whether the client may do the operation on the resource. */
  allows(client: AclClient, operation: number, resourceType: number, name: string): boolean {
    if (this.#options.superUsers.has(client.principal)) return true;
    const acls = this.#matching(resourceType, name);
    if (acls.length === 0) return this.#options.allowIfNoAcl;
    const relevant = acls.filter((acl) => isAbout(acl, client) && concerns(acl, operation));
    return relevant.length > 0 && relevant.every(({ permissionType }) => permissionType !== DENY);
  }

  /** Whether there may be a resource of the type on which the client may do it. */
  allowsSome(client: AclClient, operation: number, resourceType: number): boolean {
    const { superUsers, allowIfNoAcl } = this.#options;
    if (superUsers.has(client.principal)) return true;
    const { literal, prefixed } = this.#patterns(resourceType);
    const relevant = [...literal.values(), ...prefixed.values()]
      .flat()
      .filter((acl) => isAbout(acl, client) && concerns(acl, operation));
    const isDenied = relevant.some(
      ({ permissionType, resourceName }) => permissionType === DENY && resourceName === EVERY_NAME,
    );
    const isAllowed = relevant.some(({ permissionType }) => permissionType !== DENY);
    return !isDenied && (isAllowed || allowIfNoAcl);
  }

  /** Whether the client may do the operation on the cluster. */
  allowsCluster(client: AclClient, operation: number): boolean {
    return this.allows(client, operation, AclResource.CLUSTER, CLUSTER_NAME);
  }

  #matching(resourceType: number, name: string): Acl[] {
    const { literal, prefixed } = this.#patterns(resourceType);
    const found = [...(literal.get(name) ?? [])];
    if (name !== EVERY_NAME) found.push(...(literal.get(EVERY_NAME) ?? []));
    for (const [prefix, acls] of prefixed) if (name.startsWith(prefix)) found.push(...acls);
    return found;
  }

  #patterns(resourceType: number): Patterns {
    const acls = this.#options.acls();
    if (acls !== this.#acls) {
      this.#acls = acls;
      this.#index = indexed(acls.values());
    }
    return this.#index.get(resourceType) ?? { literal: new Map(), prefixed: new Map() };
  }
}

/** The authorizer that the settings ask for; undefined: none. Throws with a sentence. */
export function configuredAuthorizer(
  config: BrokerConfig,
  acls: AuthorizerOptions['acls'],
): Authorizer | undefined {
  const name = config.text('authorizer.class.name').trim();
  if (name === '') return undefined;
  if (name !== STANDARD_AUTHORIZER) {
    throw new Error(
      `authorizer.class.name ${name} is not known: it must be ${STANDARD_AUTHORIZER}.`,
    );
  }
  const superUsers = config
    .text('super.users')
    .split(';')
    .map((each) => each.trim())
    .filter((each) => each !== '');
  return new Authorizer({
    superUsers: new Set(superUsers),
    allowIfNoAcl: config.boolean('allow.everyone.if.no.acl.found'),
    acls,
  });
}
