/**
 * DeleteTopics: removes topics by name or id.
 *
 * Decided by the controller, unless `delete.topic.enable` turns deletion off on this broker.
 */
import { ZERO_UUID } from '../../base/uuid.ts';
import { errorMessage, errors } from '../../protocol/errors.ts';
import {
  DeleteTopicsRequest,
  DeleteTopicsResponse,
} from '../../protocol/messages/20-delete-topics.ts';
import type { EncodableOf } from '../../protocol/schema.ts';
import { apiHandler } from '../api-handler.ts';

type Answer = EncodableOf<typeof DeleteTopicsResponse>;

/** First version whose clients know TOPIC_DELETION_DISABLED. */
const DISABLED_VERSION = 3;

function refuseAll(request: DeleteTopicsRequest, apiVersion: number): Answer {
  const { code } =
    apiVersion < DISABLED_VERSION ? errors.INVALID_REQUEST : errors.TOPIC_DELETION_DISABLED;
  const byName = request.topicNames.map((name) => ({ name, topicId: ZERO_UUID }));
  return {
    responses: [...request.topics, ...byName].map(({ name, topicId }) => ({
      name,
      topicId,
      errorCode: code,
      errorMessage: errorMessage(code),
    })),
  };
}

/** API 20. */
export const deleteTopics = apiHandler({
  request: DeleteTopicsRequest,
  response: DeleteTopicsResponse,
  versions: '1-6',
  handle: async ({ config, controller }, request, { apiVersion, principal }) => {
    if (!config.boolean('delete.topic.enable')) return refuseAll(request, apiVersion);
    const apiKey = DeleteTopicsRequest.apiKey ?? -1;
    return (await controller.forward(apiKey, apiVersion, request, { principal })) as Answer;
  },
});
