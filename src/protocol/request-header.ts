/**
 * The headers before every request and response.
 *
 * A request header names API, version, correlation id and client id; a response header has the
 * correlation id only. Which header version applies follows from API and version (`api-keys.ts`).
 * The client id keeps its int16 length in every version, so that brokers can always read it.
 */
import type { ByteReader, ByteWriter } from '../base/bytes.ts';
import { requestHeaderVersion, responseHeaderVersion } from './api-keys.ts';

/** What precedes a request's body. */
export interface RequestHeader {
  readonly apiKey: number;
  readonly apiVersion: number;
  readonly correlationId: number;
  readonly clientId: string | null;
}

function skipTags(reader: ByteReader): void {
  for (let count = reader.uvarint(); count > 0; count--) {
    reader.uvarint();
    reader.skip(reader.uvarint(), 'tagged field of a header');
  }
}

/** Reads a header, tagged fields included; the body follows. */
export function readRequestHeader(reader: ByteReader): RequestHeader {
  const apiKey = reader.int16();
  const apiVersion = reader.int16();
  const correlationId = reader.int32();
  const clientId = reader.nullableString();
  if (requestHeaderVersion(apiKey, apiVersion) === 2) skipTags(reader);
  return { apiKey, apiVersion, correlationId, clientId };
}

/** Writes a header; the body follows. */
export function writeRequestHeader(writer: ByteWriter, header: RequestHeader): void {
  writer.int16(header.apiKey);
  writer.int16(header.apiVersion);
  writer.int32(header.correlationId);
  writer.nullableString(header.clientId);
  if (requestHeaderVersion(header.apiKey, header.apiVersion) === 2) writer.uvarint(0);
}

/** Reads the header of a response to `apiKey` at `apiVersion`: the correlation id. */
export function readResponseHeader(reader: ByteReader, apiKey: number, apiVersion: number): number {
  const correlationId = reader.int32();
  if (responseHeaderVersion(apiKey, apiVersion) === 1) skipTags(reader);
  return correlationId;
}

/** Writes the header of the response to a request of `apiKey` and `apiVersion`. */
export function writeResponseHeader(
  writer: ByteWriter,
  apiKey: number,
  apiVersion: number,
  correlationId: number,
): void {
  writer.int32(correlationId);
  if (responseHeaderVersion(apiKey, apiVersion) === 1) writer.uvarint(0);
}
