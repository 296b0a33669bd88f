/**
 * What a guest forwards to the active controller, as it came: administrators' requests.
 *
 * A controller of another version may know fields that we do not, so the bodies are not decoded;
 * the controller authorizes the client, whose name and address go along (Envelope, KIP-590). Two
 * kinds are looked into: settings of mirrors, which only we know, and delegation tokens, which no
 * client without a proven name may ask for. A request that no controller answers closes its
 * connection, upon which clients ask another broker.
 *
 * What was changed is seen here once it arrives in this broker's metadata: the answer names no
 * offset to wait for, so a client that asks at once may see the state before (as with any Apache
 * broker).
 */
import { present } from '../../base/assert.ts';
import { ByteReader, ByteWriter } from '../../base/bytes.ts';
import { ConfigResourceType } from '../../metadata/image.ts';
import { ApiKey, type ApiName, apiName } from '../../protocol/api-keys.ts';
import { codec } from '../../protocol/codec.ts';
import { errors } from '../../protocol/errors.ts';
import {
  CreateDelegationTokenRequest,
  CreateDelegationTokenResponse,
} from '../../protocol/messages/38-create-delegation-token.ts';
import {
  RenewDelegationTokenRequest,
  RenewDelegationTokenResponse,
} from '../../protocol/messages/39-renew-delegation-token.ts';
import {
  ExpireDelegationTokenRequest,
  ExpireDelegationTokenResponse,
} from '../../protocol/messages/40-expire-delegation-token.ts';
import {
  IncrementalAlterConfigsRequest,
  IncrementalAlterConfigsResponse,
} from '../../protocol/messages/44-incremental-alter-configs.ts';
import { type EncodableOf, type Message, parseVersions } from '../../protocol/schema.ts';
import type { BrokerServices, RawApiHandler, RequestContext } from '../api-handler.ts';
import { AclOperation } from '../authorizer.ts';
import { ANONYMOUS } from '../client-session.ts';
import { UnanswerableRequest } from '../socket-server.ts';

/** The versions that Apache Kafka 4.2 offers. */
const FORWARDED: readonly (readonly [ApiName, string])[] = [
  ['CreateTopics', '2-7'],
  ['DeleteTopics', '1-6'],
  ['CreateAcls', '1-3'],
  ['DeleteAcls', '1-3'],
  ['AlterConfigs', '0-2'],
  ['CreatePartitions', '0-3'],
  ['ElectLeaders', '0-2'],
  ['AlterPartitionReassignments', '0-1'],
  ['ListPartitionReassignments', '0'],
  ['AlterClientQuotas', '0-1'],
  ['AlterUserScramCredentials', '0'],
  ['DescribeQuorum', '0-2'],
  ['UpdateFeatures', '0-2'],
  ['UnregisterBroker', '0'],
  ['AddRaftVoter', '0-1'],
  ['RemoveRaftVoter', '0'],
];

function forwardContext({ principal, clientHost, clientId }: RequestContext) {
  return { principal, clientAddress: clientHost, clientId };
}

async function forward(
  { controller }: BrokerServices,
  apiKey: number,
  body: Uint8Array,
  context: RequestContext,
): Promise<Uint8Array> {
  const forwardRaw = present(controller.forwardRaw?.bind(controller), 'a controller elsewhere');
  try {
    return await forwardRaw(apiKey, context.apiVersion, body, forwardContext(context));
  } catch (error) {
    throw new UnanswerableRequest(
      `${apiName(apiKey)} of ${context.clientHost} could not be forwarded to a controller: ` +
        `${(error as Error).message}`,
    );
  }
}

function forwarded(name: ApiName, versions: string): RawApiHandler {
  const apiKey = ApiKey[name];
  return {
    apiKey,
    versions: parseVersions(versions),
    handleBody: (services, body, context) => forward(services, apiKey, body, context),
  };
}

function encoded<M extends Message>(message: M, version: number, value: EncodableOf<M>) {
  const writer = new ByteWriter();
  codec(message, version).write(writer, value);
  return writer.toBytes();
}

function refusedConfigs(
  request: IncrementalAlterConfigsRequest,
): EncodableOf<typeof IncrementalAlterConfigsResponse> {
  const { code: errorCode } = errors.CLUSTER_AUTHORIZATION_FAILED;
  const responses = request.resources.map(({ resourceType, resourceName }) => ({
    errorCode,
    errorMessage: null,
    resourceType,
    resourceName,
  }));
  return { throttleTimeMs: 0, responses };
}

const incrementalAlterConfigs: RawApiHandler = {
  apiKey: ApiKey.IncrementalAlterConfigs,
  versions: parseVersions('0-1'),
  handleBody: async (services, body, context) => {
    const { apiVersion } = context;
    const request = codec(IncrementalAlterConfigsRequest, apiVersion).read(new ByteReader(body));
    const ofMirrors = request.resources.some(
      ({ resourceType }) => resourceType === ConfigResourceType.MIRROR,
    );
    const apiKey = ApiKey.IncrementalAlterConfigs;
    if (!ofMirrors) return forward(services, apiKey, body, context);
    const { mirrorAdmin, authorizer } = present(services.guest, 'guest services');
    const mayAlter = authorizer?.allowsCluster(context, AclOperation.CLUSTER_ACTION) ?? true;
    const answer = mayAlter
      ? await mirrorAdmin.forward(apiKey, apiVersion, request, forwardContext(context))
      : refusedConfigs(request);
    return encoded(
      IncrementalAlterConfigsResponse,
      apiVersion,
      answer as IncrementalAlterConfigsResponse,
    );
  },
};

/** Forwards what clients with a name ask; the others are refused as Apache brokers do. */
function tokenHandler<M extends Message>(
  apiKey: number,
  versions: string,
  response: M,
  refusal: EncodableOf<M>,
): RawApiHandler {
  return {
    apiKey,
    versions: parseVersions(versions),
    handleBody: (services, body, context) =>
      context.principal === ANONYMOUS
        ? Promise.resolve(encoded(response, context.apiVersion, refusal))
        : forward(services, apiKey, body, context),
  };
}

const NOT_ALLOWED = errors.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED.code;
const NO_EXPIRY = { errorCode: NOT_ALLOWED, expiryTimestampMs: -1, throttleTimeMs: 0 };

const tokenHandlers: readonly RawApiHandler[] = [
  tokenHandler(
    present(CreateDelegationTokenRequest.apiKey, 'API key'),
    '1-3',
    CreateDelegationTokenResponse,
    {
      errorCode: NOT_ALLOWED,
      principalType: 'User',
      principalName: 'ANONYMOUS',
      issueTimestampMs: -1,
      expiryTimestampMs: -1,
      maxTimestampMs: -1,
      tokenId: '',
      hmac: new Uint8Array(0),
      throttleTimeMs: 0,
    },
  ),
  tokenHandler(
    present(RenewDelegationTokenRequest.apiKey, 'API key'),
    '1-2',
    RenewDelegationTokenResponse,
    NO_EXPIRY,
  ),
  tokenHandler(
    present(ExpireDelegationTokenRequest.apiKey, 'API key'),
    '1-2',
    ExpireDelegationTokenResponse,
    NO_EXPIRY,
  ),
];

/** APIs 19, 20, 30, 31, 33, 37–40, 43–46, 49, 51, 55, 57, 64, 80 and 81. */
export const forwardedApis: readonly RawApiHandler[] = [
  ...FORWARDED.map(([name, versions]) => forwarded(name, versions)),
  incrementalAlterConfigs,
  ...tokenHandlers,
];
