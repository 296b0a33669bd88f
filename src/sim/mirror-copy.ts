/**
 * What a mirrored batch must be, judged by the contract's text and not by the product's code.
 *
 * Used by the invariants. Offsets, sizes, attributes, timestamps, sequences and records are the
 * source's (F5); the leader epoch is free (F6); the producer id is P1's; the CRC32C is that of the
 * bytes.
 */
import { crc32c } from '../base/crc32c.ts';
import { sameBytes } from './log-shadow.ts';

const HOP = 1n << 56n;
const PRODUCER_ID_AT = 43;
const CRC_AT = 17;
const ATTRIBUTES_AT = 21;

/** Rule P1. */
export function mirroredProducerId(id: bigint): bigint {
  if (id >= 0n) return -(id + 2n);
  return id === -1n ? id : id - HOP;
}

function producerId(bytes: Uint8Array): bigint {
  return Buffer.from(bytes.buffer, bytes.byteOffset).readBigInt64BE(PRODUCER_ID_AT);
}

/** Whether `copy` has the CRC32C of its bytes. */
export function validCrc(copy: Uint8Array): boolean {
  const stored = Buffer.from(copy.buffer, copy.byteOffset).readUInt32BE(CRC_AT);
  return stored === crc32c(copy.subarray(ATTRIBUTES_AT));
}

function sameButProducer(a: Uint8Array, b: Uint8Array): boolean {
  const parts: [number, number][] = [
    [0, 12],
    [16, 17],
    [ATTRIBUTES_AT, PRODUCER_ID_AT],
    [PRODUCER_ID_AT + 8, a.length],
  ];
  if (a.length !== b.length) return false;
  return parts.every(([from, to]) => sameBytes(a.subarray(from, to), b.subarray(from, to)));
}

/** Undefined: `copy` is what a mirror makes of `original`. */
export function copyProblem(copy: Uint8Array, original: Uint8Array): string | undefined {
  if (!validCrc(copy)) return 'its CRC is wrong';
  if (!sameButProducer(copy, original)) return 'its bytes differ from the source (F5)';
  const [is, was] = [producerId(copy), producerId(original)];
  if (is !== mirroredProducerId(was)) return `producer id ${was} became ${is} (P1)`;
  return undefined;
}

/** Undefined: both come from one batch, over whatever mirrors. */
export function kinProblem(copy: Uint8Array, original: Uint8Array): string | undefined {
  if (!validCrc(copy)) return 'its CRC is wrong';
  if (!sameButProducer(copy, original)) return 'its bytes differ from the source (F5)';
  const [is, was] = [producerId(copy), producerId(original)];
  const kin = is === was || is === mirroredProducerId(was) || mirroredProducerId(is) === was;
  return kin ? undefined : `producer ids ${was} and ${is} are not of one producer (P1)`;
}
