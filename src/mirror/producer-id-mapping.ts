/**
 * Which producer id a source's batch gets in the local log (rules P1, G20).
 *
 * A mapping belongs to a mirror and is asked once per batch, by `rewrite.ts`. Invariants:
 * - Different ids of one source never meet, and −1 ("none") stays −1.
 * - An id that cannot be mapped is refused, never wrapped.
 *
 * Ids are 64-bit numbers beyond what a double holds, and a bigint per batch would be slow, so they
 * are taken as a signed high and an unsigned low half.
 */
import { assert } from '../base/assert.ts';
import { FIRST_MIRRORED_ID } from '../replication/mirror-gate.ts';

const TWO_32 = 0x1_0000_0000;
/** High half of 2^56: what each further hop of an embedded mirror takes off. */
const HOP_HIGH = 2 ** 24;
/** Hops an id survives; one more would leave 64 bits (P1). */
export const MAX_HOPS = 127;

/** High half of 2^40: a guest's tag counts in these. */
const TAG_HIGH = 2 ** 8;
/** Largest tag of a source cluster (G20). */
export const MAX_TAG = 4095;
/** High half of 2^62: what a guest adds to negative ids. */
const NEGATIVE_HIGH = 2 ** 30;
/** High half of 2^52: above every id that carries a tag. */
const TAGGED_END_HIGH = (MAX_TAG + 1) * TAG_HIGH;

/** A producer id in two halves: `high` signed, `low` unsigned. */
export interface ProducerIdHalves {
  readonly high: number;
  readonly low: number;
}

/** See the file header. */
export interface ProducerIdMapping {
  /**
   * The local id for a source's, in the batch that begins at `baseOffset`; undefined: it cannot be
   * mirrored once more.
   */
  map(high: number, low: number, baseOffset?: number): ProducerIdHalves | undefined;
}

/** A producer that has another local id from an offset on. */
export interface ProducerIdException {
  readonly fromOffset: number;
  /** At the source. */
  readonly producerId: bigint;
  readonly localProducerId: bigint;
}

function halvesOf(producerId: bigint): ProducerIdHalves {
  return { high: Number(producerId >> 32n), low: Number(producerId & 0xffff_ffffn) };
}

/** `mapping`, but for the producers that exceptions name (G24a). */
export function mappingExcept(
  mapping: ProducerIdMapping,
  exceptions: readonly ProducerIdException[],
): ProducerIdMapping {
  if (exceptions.length === 0) return mapping;
  const known = exceptions.map(({ fromOffset, producerId, localProducerId }) => ({
    fromOffset,
    from: halvesOf(producerId),
    to: halvesOf(localProducerId),
  }));
  return {
    map(high, low, baseOffset = -1) {
      const exception = known.find(
        ({ from, fromOffset }) =>
          from.high === high && from.low === low && fromOffset <= baseOffset,
      );
      return exception?.to ?? mapping.map(high, low, baseOffset);
    },
  };
}

function isNone(high: number, low: number): boolean {
  return high === -1 && low === TWO_32 - 1;
}

function isEmbeddedMappable(high: number, low: number): boolean {
  if (high >= 0) return high < HOP_HIGH - 1 || (high === HOP_HIGH - 1 && low < TWO_32 - 2);
  const limit = -(MAX_HOPS - 1) * HOP_HIGH;
  return high > limit || (high === limit && low > 0);
}

/**
 * P1: −(id + 2) for ids ≥ 0, −1 for −1, and id − 2^56 for one that was mirrored before. For ids
 * below 2^56 − 2 and {@link MAX_HOPS} hops.
 */
export const embeddedMapping: ProducerIdMapping = {
  map(high, low) {
    if (!isEmbeddedMappable(high, low)) return undefined;
    if (high >= 0) {
      // −(x + 2) is ~x − 1 in two's complement.
      const inverted = ~low >>> 0;
      if (inverted > 0) return { high: ~high, low: inverted - 1 };
      return { high: ~high - 1, low: TWO_32 - 1 };
    }
    return isNone(high, low) ? { high, low } : { high: high - HOP_HIGH, low };
  },
};

/**
 * G20: id + 2^40 · tag below 2^40, the id itself from there on, −1 for −1, and 2^62 + id for ids of
 * −2 and below: an Apache broker keeps no state for a negative one. `tag` is the source cluster's,
 * 1 to {@link MAX_TAG}. Ids of an embedded mirror are mapped up to their 63rd hop, those further
 * down would meet tagged ones.
 */
export function guestMapping(tag: number): ProducerIdMapping {
  assert(Number.isInteger(tag) && tag >= 1 && tag <= MAX_TAG, `no tag: ${tag}`);
  return {
    map(high, low) {
      if (high >= TAG_HIGH || isNone(high, low)) return { high, low };
      if (high >= 0) return { high: high + TAG_HIGH * tag, low };
      const raised = high + NEGATIVE_HIGH;
      return raised < TAGGED_END_HIGH ? undefined : { high: raised, low };
    },
  };
}

/**
 * The id at the source of one that {@link guestMapping} made here; undefined: no source's, but one
 * that this cluster gave out. An id with another tag was one already and is the same there.
 */
export function guestSourceId(tag: number, producerId: bigint): bigint | undefined {
  if (producerId < FIRST_MIRRORED_ID) return undefined;
  if (producerId / FIRST_MIRRORED_ID === BigInt(tag)) return producerId % FIRST_MIRRORED_ID;
  return producerId >= BigInt(MAX_TAG + 1) * FIRST_MIRRORED_ID && producerId <= 2n ** 62n - 2n
    ? producerId - 2n ** 62n
    : producerId;
}

function same(a: ProducerIdHalves, b: ProducerIdHalves | undefined): boolean {
  return b !== undefined && a.high === b.high && a.low === b.low;
}

/** Whether some guest, whatever its tag, makes `copy` out of `original`. */
function isGuestCopy(copy: ProducerIdHalves, original: ProducerIdHalves): boolean {
  if (copy.low !== original.low || isNone(original.high, original.low)) return false;
  if (original.high < 0) return copy.high === original.high + NEGATIVE_HIGH;
  const distance = copy.high - original.high;
  const isTag = distance > 0 && distance < TAGGED_END_HIGH && distance % TAG_HIGH === 0;
  return original.high < TAG_HIGH && isTag;
}

/**
 * Whether two batches can be of the same producer: both sides hold it under one id, or one side
 * mirrored it from the other. The tag of the other side's guest is not known here.
 */
export function isSameProducer(a: ProducerIdHalves, b: ProducerIdHalves): boolean {
  return (
    same(a, b) ||
    same(a, embeddedMapping.map(b.high, b.low)) ||
    same(b, embeddedMapping.map(a.high, a.low)) ||
    isGuestCopy(a, b) ||
    isGuestCopy(b, a)
  );
}
