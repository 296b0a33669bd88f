/**
 * Handlers of APIs that only the controller decides: the request goes there, its answer comes back.
 *
 * CreateTopics, DeleteTopics, CreatePartitions, IncrementalAlterConfigs. The embedded controller
 * publishes to this broker before it answers, so a client that asks the same broker next sees what
 * it just did; a controller elsewhere will need a wait for its offset here.
 */
import type { EncodableOf, Message } from '../protocol/schema.ts';
import { type ApiHandler, apiHandler } from './api-handler.ts';

/** A handler that forwards to the controller. */
export function forwarded<Q extends Message, S extends Message>(declaration: {
  readonly request: Q;
  readonly response: S;
  readonly versions: string;
  readonly unlistedVersions?: string;
}): ApiHandler {
  return apiHandler<Q, S>({
    ...declaration,
    handle: async ({ controller }, request, { apiVersion, principal }) => {
      const key = declaration.request.apiKey ?? -1;
      const response = await controller.forward(key, apiVersion, request, { principal });
      return response as EncodableOf<S>;
    },
  });
}
