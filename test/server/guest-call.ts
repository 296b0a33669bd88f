/**
 * Calls the handlers of a guest as a client would: over encoded bytes, in a version.
 */
import { codec } from '../../src/protocol/codec.ts';
import type { EncodableOf, Message, MessageOf } from '../../src/protocol/schema.ts';
import type {
  ApiHandler,
  BrokerServices,
  RawApiHandler,
  RequestContext,
} from '../../src/server/api-handler.ts';
import { ANONYMOUS } from '../../src/server/client-session.ts';
import { guestApiTable } from '../../src/server/guest-api-table.ts';
import type { Api } from './call.ts';

/** The context of a request on an ordinary connection. */
export function contextOf(apiVersion: number, principal = ANONYMOUS): RequestContext {
  return {
    apiVersion,
    clientId: 'me',
    clientHost: '192.0.2.7',
    principal,
    listenerName: 'PLAINTEXT',
    connectionId: 1,
  };
}

/** Who serves an API at a guest. */
export function guestHandler(apiKey: number | undefined): ApiHandler | RawApiHandler {
  const handler = guestApiTable.get(apiKey ?? -1);
  if (handler === undefined) throw new Error(`API ${apiKey} is not served`);
  return handler;
}

/** Every version that a guest offers of an API. */
export function guestVersions({ request }: Api<Message, Message>): number[] {
  const { min, max } = guestHandler(request.apiKey).versions;
  return Array.from({ length: max - min + 1 }, (_, i) => min + i);
}

/** The body of the answer to a request body. */
export async function answerBody(
  apiKey: number | undefined,
  services: BrokerServices,
  body: Uint8Array,
  context: RequestContext,
): Promise<Uint8Array> {
  const handler = guestHandler(apiKey);
  if ('handleBody' in handler) return handler.handleBody(services, body, context);
  const decoded = codec(handler.request, context.apiVersion).decode(body);
  const answer = await handler.handle(services, decoded, context);
  return codec(handler.response, context.apiVersion).encodeToBytes(answer as EncodableOf<Message>);
}

/** The answer of a guest, as it arrives at the client. */
export async function askGuest<Q extends Message, R extends Message>(
  { request, response }: Api<Q, R>,
  version: number,
  services: BrokerServices,
  value: EncodableOf<Q>,
  principal = ANONYMOUS,
): Promise<MessageOf<R>> {
  const body = codec(request, version).encodeToBytes(value);
  const context = contextOf(version, principal);
  return codec(response, version).decode(await answerBody(request.apiKey, services, body, context));
}
