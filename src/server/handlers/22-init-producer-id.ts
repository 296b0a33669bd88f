/**
 * InitProducerId: an id for an idempotent producer.
 *
 * Every call gets a fresh id with epoch 0 (also one that asks for a higher epoch of an id it has: a
 * new id fences nothing of others and needs no state). Transactional ids are not served yet; the
 * error is final, so producers fail at once instead of retrying.
 */
import { errors } from '../../protocol/errors.ts';
import {
  InitProducerIdRequest,
  InitProducerIdResponse,
} from '../../protocol/messages/22-init-producer-id.ts';
import { apiHandler } from '../api-handler.ts';

/** API 22. */
export const initProducerId = apiHandler({
  request: InitProducerIdRequest,
  response: InitProducerIdResponse,
  versions: '0-5',
  handle: async ({ producerIds }, { transactionalId }) => {
    if (transactionalId !== null) {
      return {
        throttleTimeMs: 0,
        errorCode: errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED.code,
        producerEpoch: -1,
      };
    }
    const result = await producerIds.next();
    if ('error' in result) return { throttleTimeMs: 0, errorCode: result.error, producerEpoch: -1 };
    return {
      throttleTimeMs: 0,
      errorCode: errors.NONE.code,
      producerId: result.producerId,
      producerEpoch: 0,
    };
  },
});
