/**
 * Puts an authorizer in front of the handlers of an API table.
 *
 * A guard sees the decoded request and calls the handler with what of it is allowed; handlers know
 * nothing of ACLs. The guards of each API are in `guest-guards.ts`. Where there is no authorizer no
 * guard is in the way.
 */
import type { EncodableOf, Message, MessageOf } from '../protocol/schema.ts';
import type { ApiHandler, ApiTable, BrokerServices, RequestContext } from './api-handler.ts';
import { AclResource, type Authorizer } from './authorizer.ts';

/** What the client of one request may do. */
export class Access {
  readonly #authorizer: Authorizer;
  readonly #context: RequestContext;

  constructor(authorizer: Authorizer, context: RequestContext) {
    this.#authorizer = authorizer;
    this.#context = context;
  }

  cluster(operation: number): boolean {
    return this.#authorizer.allowsCluster(this.#context, operation);
  }

  topic(operation: number, name: string): boolean {
    return this.#authorizer.allows(this.#context, operation, AclResource.TOPIC, name);
  }

  someTopic(operation: number): boolean {
    return this.#authorizer.allowsSome(this.#context, operation, AclResource.TOPIC);
  }

  group(operation: number, id: string): boolean {
    return this.#authorizer.allows(this.#context, operation, AclResource.GROUP, id);
  }

  transactionalId(operation: number, id: string): boolean {
    const type = AclResource.TRANSACTIONAL_ID;
    return this.#authorizer.allows(this.#context, operation, type, id);
  }
}

/** What a guard looks at. */
export interface Guarded<Q extends Message, S extends Message> {
  readonly access: Access;
  readonly request: MessageOf<Q>;
  readonly services: BrokerServices;
  readonly context: RequestContext;
  /** Asks the handler. */
  call(request: MessageOf<Q>): Promise<EncodableOf<S>>;
}

interface AnyGuarded extends Omit<Guarded<Message, Message>, 'request' | 'call'> {
  readonly request: unknown;
  call(request: unknown): Promise<unknown>;
}

/** A guard with its message types erased, by the API it is for. */
export type Guard = readonly [apiKey: number, check: (guarded: AnyGuarded) => unknown];

/** Declares the guard of one API. */
export function guard<Q extends Message, S extends Message>(
  request: Q,
  _response: S,
  check: (guarded: Guarded<Q, S>) => EncodableOf<S> | Promise<EncodableOf<S>>,
): Guard {
  return [request.apiKey ?? -1, (guarded) => check(guarded as unknown as Guarded<Q, S>)];
}

/** The table with guards before the handlers that have one. */
export function guardedTable(
  table: ApiTable,
  guards: readonly Guard[],
  authorizer: Authorizer,
): ApiTable {
  const guarded = new Map(table);
  for (const [apiKey, check] of guards) {
    const handler = table.get(apiKey);
    if (handler === undefined || 'handleBody' in handler) continue;
    const behind: ApiHandler = {
      ...handler,
      handle: (services, request, context) =>
        check({
          access: new Access(authorizer, context),
          request,
          services,
          context,
          call: async (allowed) => await handler.handle(services, allowed, context),
        }),
    };
    guarded.set(apiKey, behind);
  }
  return guarded;
}
