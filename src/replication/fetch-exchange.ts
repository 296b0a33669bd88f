/**
 * One fetch over a connection, as followers and mirrors send it (F2, G14).
 *
 * Called by the endpoints of both, which say what is asked and what becomes of the answer.
 * Invariant: `take` runs inside the receipt of the response, while its records are valid.
 */
import type { Clock } from '../io/runtime.ts';
import { type ErrorCode, errors } from '../protocol/errors.ts';
import {
  ConnectionError,
  type KafkaConnection,
  type SendOptions,
} from '../protocol/kafka-connection.ts';
import { FetchRequest, FetchResponse } from '../protocol/messages/01-fetch.ts';
import type { EncodableOf } from '../protocol/schema.ts';
import type { FetchOutcome } from './leader-endpoint.ts';

/** Beyond its limit a response may hold one batch, of so many bytes. */
export const LARGEST_BATCH_BYTES = 64 * 1024 * 1024;

/** Errors that end a fetch session (KIP-227); all targets are then to be named again. */
export const SESSION_ERRORS: ReadonlySet<number> = new Set<ErrorCode>([
  errors.FETCH_SESSION_ID_NOT_FOUND.code,
  errors.INVALID_FETCH_SESSION_EPOCH.code,
  errors.FETCH_SESSION_TOPIC_ID_ERROR.code,
]);

/** Sends a fetch; rejects with a {@link ConnectionError}, or with what `take` throws. */
export function exchangeFetch(
  clock: Pick<Clock, 'setTimer'>,
  connection: KafkaConnection,
  request: EncodableOf<typeof FetchRequest>,
  options: SendOptions,
  take: (response: FetchResponse) => FetchOutcome,
): Promise<FetchOutcome> {
  return new Promise((resolve, reject) => {
    connection.exchange(FetchRequest, FetchResponse, request, options, (response) => {
      if (response instanceof ConnectionError) {
        reject(response);
        return;
      }
      try {
        const outcome = take(response);
        if (response.throttleTimeMs <= 0) resolve(outcome);
        // KIP-219: a client over its quota waits before it asks again (F2).
        else clock.setTimer(response.throttleTimeMs, () => resolve(outcome));
      } catch (error) {
        // Not into the socket, whose owner knows nothing of logs: the endpoint judges it.
        reject(error);
      }
    });
  });
}
