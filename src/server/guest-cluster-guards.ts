/**
 * What a client of a guest must be allowed on the cluster as a whole, API by API (G35, A5).
 *
 * All or nothing: whoever lacks the right gets CLUSTER_AUTHORIZATION_FAILED, and no content.
 */
import { ZERO_UUID } from '../base/uuid.ts';
import { errors } from '../protocol/errors.ts';
import {
  DescribeAclsRequest,
  DescribeAclsResponse,
} from '../protocol/messages/29-describe-acls.ts';
import {
  DescribeLogDirsRequest,
  DescribeLogDirsResponse,
} from '../protocol/messages/35-describe-log-dirs.ts';
import {
  DescribeClientQuotasRequest,
  DescribeClientQuotasResponse,
} from '../protocol/messages/48-describe-client-quotas.ts';
import {
  DescribeUserScramCredentialsRequest,
  DescribeUserScramCredentialsResponse,
} from '../protocol/messages/50-describe-user-scram-credentials.ts';
import {
  ListConfigResourcesRequest,
  ListConfigResourcesResponse,
} from '../protocol/messages/74-list-config-resources.ts';
import {
  CreateMirrorRequest,
  CreateMirrorResponse,
} from '../protocol/messages/12790-create-mirror.ts';
import {
  AddTopicsToMirrorRequest,
  AddTopicsToMirrorResponse,
} from '../protocol/messages/12791-add-topics-to-mirror.ts';
import {
  RemoveTopicsFromMirrorRequest,
  RemoveTopicsFromMirrorResponse,
} from '../protocol/messages/12792-remove-topics-from-mirror.ts';
import {
  LastMirroredOffsetsRequest,
  LastMirroredOffsetsResponse,
} from '../protocol/messages/12793-last-mirrored-offsets.ts';
import {
  ListMirrorsRequest,
  ListMirrorsResponse,
} from '../protocol/messages/12794-list-mirrors.ts';
import {
  DescribeMirrorsRequest,
  DescribeMirrorsResponse,
} from '../protocol/messages/12795-describe-mirrors.ts';
import type { EncodableOf, Message } from '../protocol/schema.ts';
import { type Guard, guard } from './access-guard.ts';
import { AclOperation } from './authorizer.ts';

const { DESCRIBE, DESCRIBE_CONFIGS, CLUSTER_ACTION } = AclOperation;
const REFUSED = errors.CLUSTER_AUTHORIZATION_FAILED.code;

function guarded<Q extends Message, S extends Message>(
  request: Q,
  response: S,
  operation: number,
  refusal: EncodableOf<S>,
): Guard {
  return guard(request, response, (asked) =>
    asked.access.cluster(operation) ? asked.call(asked.request) : refusal,
  );
}

/** See the file header. */
export const clusterGuards: readonly Guard[] = [
  guarded(DescribeAclsRequest, DescribeAclsResponse, DESCRIBE, {
    errorCode: REFUSED,
    errorMessage: null,
    throttleTimeMs: 0,
    resources: [],
  }),
  guarded(DescribeLogDirsRequest, DescribeLogDirsResponse, DESCRIBE, {
    errorCode: REFUSED,
    throttleTimeMs: 0,
    results: [],
  }),
  guarded(DescribeClientQuotasRequest, DescribeClientQuotasResponse, DESCRIBE_CONFIGS, {
    errorCode: REFUSED,
    errorMessage: null,
    throttleTimeMs: 0,
    entries: null,
  }),
  guarded(DescribeUserScramCredentialsRequest, DescribeUserScramCredentialsResponse, DESCRIBE, {
    errorCode: REFUSED,
    errorMessage: null,
    throttleTimeMs: 0,
    results: [],
  }),
  guarded(ListConfigResourcesRequest, ListConfigResourcesResponse, DESCRIBE_CONFIGS, {
    errorCode: REFUSED,
    throttleTimeMs: 0,
    configResources: [],
  }),
  guarded(CreateMirrorRequest, CreateMirrorResponse, CLUSTER_ACTION, { errorCode: REFUSED }),
  guarded(AddTopicsToMirrorRequest, AddTopicsToMirrorResponse, CLUSTER_ACTION, {
    errorCode: REFUSED,
    topicId: ZERO_UUID,
    topics: [],
  }),
  guarded(RemoveTopicsFromMirrorRequest, RemoveTopicsFromMirrorResponse, CLUSTER_ACTION, {
    errorCode: REFUSED,
    topicId: ZERO_UUID,
    topics: [],
  }),
  guarded(LastMirroredOffsetsRequest, LastMirroredOffsetsResponse, DESCRIBE, {
    errorCode: REFUSED,
    topics: [],
  }),
  guarded(ListMirrorsRequest, ListMirrorsResponse, DESCRIBE, { errorCode: REFUSED, mirrors: [] }),
  guard(DescribeMirrorsRequest, DescribeMirrorsResponse, ({ access, request, call }) => {
    if (access.cluster(DESCRIBE)) return call(request);
    const names = request.mirrorNames ?? [''];
    const mirrors = names.map((mirrorName) => ({ errorCode: REFUSED, mirrorName, topics: [] }));
    return { mirrors };
  }),
];
