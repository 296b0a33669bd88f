/**
 * InitProducerId in guest mode: ids for idempotent producers, which ask any broker.
 *
 * The ids come from the controller's blocks, so they are unique in the cluster. Transactional ids
 * belong to their coordinator, which a guest never is.
 */
import { errors } from '../../protocol/errors.ts';
import {
  InitProducerIdRequest,
  InitProducerIdResponse,
} from '../../protocol/messages/22-init-producer-id.ts';
import { apiHandler } from '../api-handler.ts';
import { initProducerId as idempotent } from '../handlers/22-init-producer-id.ts';

/** API 22. */
export const initProducerId = apiHandler({
  request: InitProducerIdRequest,
  response: InitProducerIdResponse,
  versions: '0-5',
  handle: async (services, request, context) => {
    const { transactionalId } = request;
    if (transactionalId === null) {
      return (await idempotent.handle(services, request, context)) as InitProducerIdResponse;
    }
    const { code } = transactionalId === '' ? errors.INVALID_REQUEST : errors.NOT_COORDINATOR;
    return { throttleTimeMs: 0, errorCode: code, producerEpoch: -1 };
  },
});
