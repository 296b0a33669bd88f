/**
 * DescribeClientQuotas in guest mode: the client quotas of the cluster, from the metadata.
 *
 * A filter names entity types, each with a name, with "the default", or with any; strict leaves out
 * entities that have further types (KIP-546).
 */
import type { ClientQuota } from '../../metadata/security-image.ts';
import { errors } from '../../protocol/errors.ts';
import {
  DescribeClientQuotasRequest,
  DescribeClientQuotasResponse,
} from '../../protocol/messages/48-describe-client-quotas.ts';
import { apiHandler } from '../api-handler.ts';

type Component = DescribeClientQuotasRequest['components'][number];

const MatchType = { exact: 0, default: 1, any: 2 } as const;
const IP = 'ip';
const ENTITY_TYPES: ReadonlySet<string> = new Set(['user', 'client-id', IP]);

/** What is wrong with a filter: the error code and a sentence; undefined when nothing is. */
function problem(components: readonly Component[]): readonly [number, string] | undefined {
  const types = components.map(({ entityType }) => entityType);
  const invalid = errors.INVALID_REQUEST.code;
  for (const { entityType, matchType, match } of components) {
    if (entityType === '') return [invalid, 'An entity type is empty.'];
    if (!ENTITY_TYPES.has(entityType)) {
      return [errors.UNSUPPORTED_VERSION.code, `There is no entity type ${entityType}.`];
    }
    if (types.indexOf(entityType) !== types.lastIndexOf(entityType)) {
      return [invalid, `Entity type ${entityType} is named twice.`];
    }
    if (matchType < MatchType.exact || matchType > MatchType.any) {
      return [invalid, `There is no match type ${matchType}.`];
    }
    if ((matchType === MatchType.exact) !== (match !== null)) {
      return [invalid, 'Exactly an exact match has a name to match.'];
    }
  }
  if (types.includes(IP) && types.length > 1) {
    return [invalid, 'Quotas of addresses have no users or client ids.'];
  }
  return undefined;
}

function matches({ entity }: ClientQuota, { entityType, matchType, match }: Component): boolean {
  if (!entity.has(entityType)) return false;
  return matchType === MatchType.any || entity.get(entityType) === match;
}

/** API 48. */
export const describeClientQuotas = apiHandler({
  request: DescribeClientQuotasRequest,
  response: DescribeClientQuotasResponse,
  versions: '0-1',
  handle: ({ metadata }, { components, strict }) => {
    const [errorCode, errorMessage] = problem(components) ?? [errors.NONE.code, null];
    if (errorCode !== errors.NONE.code) {
      return { throttleTimeMs: 0, errorCode, errorMessage, entries: null };
    }
    const found = [...metadata.image.security.clientQuotas.values()].filter(
      (quota) =>
        components.every((component) => matches(quota, component)) &&
        (!strict || quota.entity.size === components.length),
    );
    const entries = found.map(({ entity, values }) => ({
      entity: [...entity].map(([entityType, entityName]) => ({ entityType, entityName })),
      values: [...values].map(([key, value]) => ({ key, value })),
    }));
    return { throttleTimeMs: 0, errorCode, errorMessage: null, entries };
  },
});
