/**
 * Puts a client's request into an Envelope, and takes its response out again.
 *
 * Used by the remote controller's `forward`. The envelope carries the request with its header, as a
 * client would have sent it, the client's principal (KafkaPrincipal's default serialisation: an
 * int16 version, then DefaultPrincipalData) and its address; the controller checks the rights of
 * that principal, and that of the connection for the right to forward (CLUSTER_ACTION).
 */
import { ByteReader, ByteWriter, MalformedBytes } from '../../base/bytes.ts';
import { codec } from '../../protocol/codec.ts';
import { DefaultPrincipalData } from '../../protocol/messages/default-principal-data.ts';
import {
  type RequestHeader,
  readResponseHeader,
  writeRequestHeader,
} from '../../protocol/request-header.ts';
import type { ForwardContext } from '../controller-port.ts';

const PRINCIPAL_VERSION = 0;
const LOOPBACK = Uint8Array.of(127, 0, 0, 1);
const IPV4_BYTES = 4;
const IPV6_GROUPS = 8;

/** A request as bytes, header included. */
export function enclosedRequest(header: RequestHeader, body: Uint8Array): Uint8Array {
  const writer = new ByteWriter();
  writeRequestHeader(writer, header);
  writer.raw(body);
  return writer.toBytes();
}

/** The response's body in an envelope; {@link MalformedBytes} when it answers something else. */
export function enclosedResponse(
  { apiKey, apiVersion, correlationId }: RequestHeader,
  bytes: Uint8Array,
): Uint8Array {
  const reader = new ByteReader(bytes);
  const answered = readResponseHeader(reader, apiKey, apiVersion);
  if (answered !== correlationId) {
    throw new MalformedBytes(`envelope answers ${answered}, not ${correlationId}`, 0);
  }
  return reader.view(reader.remaining);
}

/** A principal as the controller reads it. */
export function principalBytes({ principal }: ForwardContext): Uint8Array {
  const colon = principal.indexOf(':');
  const writer = new ByteWriter();
  writer.int16(PRINCIPAL_VERSION);
  codec(DefaultPrincipalData, PRINCIPAL_VERSION).write(writer, {
    type: principal.slice(0, Math.max(colon, 0)),
    name: principal.slice(colon + 1),
    tokenAuthenticated: false,
  });
  return writer.toBytes();
}

/** The 4 or 16 bytes of an IP address; those of 127.0.0.1 for what is none. */
export function addressBytes(address: string | undefined): Uint8Array {
  const plain = (address ?? '').replace(/%.*$/, '').replace(/^::ffff:(?=[\d.]+$)/i, '');
  return ipv4Bytes(plain) ?? ipv6Bytes(plain) ?? LOOPBACK;
}

function ipv4Bytes(text: string): Uint8Array | undefined {
  const parts = text.split('.').map((part) => (/^\d{1,3}$/.test(part) ? Number(part) : 256));
  const isAddress = parts.length === IPV4_BYTES && parts.every((part) => part < 256);
  return isAddress ? Uint8Array.from(parts) : undefined;
}

function ipv6Bytes(text: string): Uint8Array | undefined {
  const [head = '', tail, more] = text.split('::');
  if (!text.includes(':') || more !== undefined) return undefined;
  const groups = (part: string): string[] => (part === '' ? [] : part.split(':'));
  const [before, after] = [groups(head), groups(tail ?? '')];
  const missing = IPV6_GROUPS - before.length - after.length;
  if (tail === undefined ? missing !== 0 : missing < 1) return undefined;
  const all = [...before, ...new Array<string>(missing).fill('0'), ...after];
  if (!all.every((group) => /^[0-9a-f]{1,4}$/i.test(group))) return undefined;
  return Uint8Array.from(
    all.flatMap((group) => {
      const value = Number.parseInt(group, 16);
      return [value >> 8, value & 0xff];
    }),
  );
}
