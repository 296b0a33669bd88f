/**
 * From a request frame to a response frame: header, dispatch by API and version, body.
 *
 * What Apache Kafka does with requests it cannot serve is done here too: an ApiVersions request of
 * an unknown version is answered UNSUPPORTED_VERSION in version 0 with the list of APIs; any other
 * unknown API or version, and a body that cannot be decoded, closes the connection, since no client
 * could read an answer. The log line names API, version and client.
 * A client that has to authenticate is served what it needs for that and nothing else.
 */
import type { BufferPool } from '../base/buffer-pool.ts';
import { ByteReader, ByteWriter, MalformedBytes } from '../base/bytes.ts';
import { ApiKey, apiName } from '../protocol/api-keys.ts';
import { codec } from '../protocol/codec.ts';
import { errors } from '../protocol/errors.ts';
import { encodeResponseFrame, responseFrameOf } from '../protocol/frame.ts';
import { ApiVersionsResponse } from '../protocol/messages/18-api-versions.ts';
import { type RequestHeader, readRequestHeader } from '../protocol/request-header.ts';
import { type EncodableOf, inVersions, type Message } from '../protocol/schema.ts';
import {
  type ApiHandler,
  type ApiTable,
  type BrokerServices,
  NO_RESPONSE,
  type RawApiHandler,
  type RequestContext,
} from './api-handler.ts';
import { ANONYMOUS, type TokenAnswer } from './client-session.ts';
import { type ConnectionContext, UnanswerableRequest } from './socket-server.ts';

/** What a client may ask before it has authenticated. */
const OPEN_APIS: ReadonlySet<number> = new Set<number>([
  ApiKey.ApiVersions,
  ApiKey.SaslHandshake,
  ApiKey.SaslAuthenticate,
]);

function serves(handler: ApiHandler | RawApiHandler, apiVersion: number): boolean {
  if (inVersions(handler.versions, apiVersion)) return true;
  return 'unlistedVersions' in handler && inVersions(handler.unlistedVersions, apiVersion);
}

/** The answer to a token without a header; undefined: none, the connection just ends. */
function rawAnswer({ errorCode, authBytes }: TokenAnswer): Uint8Array[] | undefined {
  if (errorCode !== errors.NONE.code) return undefined;
  const size = new ByteWriter();
  size.int32(authBytes.length);
  return [size.toBytes(), authBytes];
}

/** Serves frames with the handlers of an API table. */
export class RequestHandler {
  readonly #services: BrokerServices;
  readonly #handlers: ApiTable;
  readonly #buffers: BufferPool;

  /** `buffers`: where the frames come from. */
  constructor(services: BrokerServices, handlers: ApiTable, buffers: BufferPool) {
    this.#services = services;
    this.#handlers = handlers;
    this.#buffers = buffers;
  }

  /** Chunks of the response frame; undefined when the request gets none. */
  async handleFrame(
    frame: Uint8Array,
    connection: ConnectionContext,
  ): Promise<readonly Uint8Array[] | undefined> {
    const { session } = connection;
    if (session?.takesRawTokens === true) return rawAnswer(await session.authenticate(frame));
    const reader = new ByteReader(frame);
    const header = this.#readHeader(reader, connection);
    const principal = session === undefined ? ANONYMOUS : session.principal;
    if (principal === undefined && !OPEN_APIS.has(header.apiKey)) {
      throw new UnanswerableRequest(
        `${apiName(header.apiKey) ?? header.apiKey} from ${connection.clientHost}, ` +
          'which has to authenticate first',
      );
    }
    const handler = this.#handlers.get(header.apiKey);
    if (handler === undefined || !serves(handler, header.apiVersion)) {
      return this.#unsupported(header, connection);
    }
    const context: RequestContext = {
      ...connection,
      apiVersion: header.apiVersion,
      clientId: header.clientId,
      principal: principal ?? ANONYMOUS,
    };
    if ('handleBody' in handler) {
      const body = reader.view(reader.remaining);
      return responseFrameOf(header, await handler.handleBody(this.#services, body, context));
    }
    const request = this.#decode(handler.request, header, reader, connection);
    const response = await handler.handle(this.#services, request, context);
    // Its records are in the log; other requests may leave parts of theirs behind.
    if (header.apiKey === ApiKey.Produce) this.#buffers.give(frame);
    if (response === NO_RESPONSE) return undefined;
    return encodeResponseFrame(
      header.correlationId,
      codec(handler.response, header.apiVersion),
      response as EncodableOf<Message>,
    );
  }

  #readHeader(reader: ByteReader, connection: ConnectionContext): RequestHeader {
    try {
      return readRequestHeader(reader);
    } catch (error) {
      if (!(error instanceof MalformedBytes)) throw error;
      throw new UnanswerableRequest(
        `request header from ${connection.clientHost} cannot be read: ${error.message}`,
      );
    }
  }

  #decode(
    schema: Message,
    header: RequestHeader,
    reader: ByteReader,
    connection: ConnectionContext,
  ): unknown {
    try {
      return codec(schema, header.apiVersion).read(reader);
    } catch (error) {
      if (!(error instanceof MalformedBytes)) throw error;
      const api = apiName(header.apiKey) ?? header.apiKey;
      throw new UnanswerableRequest(
        `${api} request v${header.apiVersion} from ${connection.clientHost} ` +
          `(client id ${header.clientId}) cannot be read: ${error.message}`,
      );
    }
  }

  #unsupported(header: RequestHeader, connection: ConnectionContext): Uint8Array[] {
    if (header.apiKey === ApiKey.ApiVersions) {
      return encodeResponseFrame(header.correlationId, codec(ApiVersionsResponse, 0), {
        errorCode: errors.UNSUPPORTED_VERSION.code,
        apiKeys: this.#services.listedApis,
      });
    }
    const api = apiName(header.apiKey);
    throw new UnanswerableRequest(
      `${api ?? `API key ${header.apiKey}`} v${header.apiVersion} from ${connection.clientHost} ` +
        `(client id ${header.clientId}) is not served; ApiVersions lists what is`,
    );
  }
}
