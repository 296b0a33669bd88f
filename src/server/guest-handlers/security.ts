/**
 * What any broker shows of a cluster's security: ACLs, SCRAM credentials and delegation tokens.
 *
 * ACLs are asked of the active controller, which says SECURITY_DISABLED where none are in use. Who
 * has credentials is read from this broker's metadata, whose secrets stay there.
 * Delegation tokens are not known here: a guest authenticates nobody by them.
 */
import { present } from '../../base/assert.ts';
import type { SecurityImage } from '../../metadata/security-image.ts';
import { errorMessage, errors } from '../../protocol/errors.ts';
import {
  DescribeAclsRequest,
  DescribeAclsResponse,
} from '../../protocol/messages/29-describe-acls.ts';
import {
  DescribeDelegationTokenRequest,
  DescribeDelegationTokenResponse,
} from '../../protocol/messages/41-describe-delegation-token.ts';
import {
  DescribeUserScramCredentialsRequest,
  DescribeUserScramCredentialsResponse,
} from '../../protocol/messages/50-describe-user-scram-credentials.ts';
import type { EncodableOf } from '../../protocol/schema.ts';
import { type ApiHandler, apiHandler } from '../api-handler.ts';
import { ANONYMOUS } from '../client-session.ts';

type ScramAnswer = EncodableOf<typeof DescribeUserScramCredentialsResponse>;
type ScramResult = ScramAnswer['results'][number];

/** As Apache Kafka writes "no error" here, where null is legal, too. */
const NO_MESSAGE = '';

const describeAcls = apiHandler({
  request: DescribeAclsRequest,
  response: DescribeAclsResponse,
  versions: '1-3',
  handle: async (services, request) => {
    const guest = present(services.guest, 'guest services');
    try {
      return await guest.askController(DescribeAclsRequest, DescribeAclsResponse, request);
    } catch (error) {
      const { message } = error as Error;
      services.runtime.logger.warn('no controller answers what ACLs there are', { error: message });
      const { code: errorCode } = errors.REQUEST_TIMED_OUT;
      return { throttleTimeMs: 0, errorCode, errorMessage: message, resources: [] };
    }
  },
});

const describeDelegationToken = apiHandler({
  request: DescribeDelegationTokenRequest,
  response: DescribeDelegationTokenResponse,
  versions: '1-3',
  handle: (_services, _request, { principal }) => {
    const { code } =
      principal === ANONYMOUS
        ? errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        : errors.DELEGATION_TOKEN_AUTH_DISABLED;
    return { errorCode: code, tokens: [], throttleTimeMs: 0 };
  },
});

function describeUser({ scramCredentials }: SecurityImage, user: string): ScramResult {
  const credentials = scramCredentials.get(user);
  const { code: errorCode } = credentials === undefined ? errors.RESOURCE_NOT_FOUND : errors.NONE;
  return {
    user,
    errorCode,
    errorMessage: credentials === undefined ? `User ${user} has no SCRAM credentials.` : NO_MESSAGE,
    credentialInfos: [...(credentials ?? [])].map(([mechanism, { iterations }]) => ({
      mechanism,
      iterations,
    })),
  };
}

const describeUserScramCredentials = apiHandler({
  request: DescribeUserScramCredentialsRequest,
  response: DescribeUserScramCredentialsResponse,
  versions: '0',
  handle: ({ metadata }, { users }): ScramAnswer => {
    const { security } = metadata.image;
    const all = users === null || users.length === 0;
    const asked = all ? [...security.scramCredentials.keys()] : users.map(({ name }) => name);
    const results = [...new Set(asked)].map((user): ScramResult => {
      if (asked.indexOf(user) === asked.lastIndexOf(user)) return describeUser(security, user);
      const { code: errorCode } = errors.DUPLICATE_RESOURCE;
      return { user, errorCode, errorMessage: errorMessage(errorCode), credentialInfos: [] };
    });
    return { throttleTimeMs: 0, errorCode: errors.NONE.code, errorMessage: NO_MESSAGE, results };
  },
});

/** APIs 29, 41 and 50. */
export const securityApis: readonly ApiHandler[] = [
  describeAcls,
  describeDelegationToken,
  describeUserScramCredentials,
];
