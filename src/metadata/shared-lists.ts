/**
 * One copy of lists that many partitions have alike: replicas, ISR, log directories.
 *
 * Used when the image is built. A broker with ten thousand partitions has as many equal replica
 * lists, and each of its images as many again; lists of an image never change, so they can be one.
 */

/** Different lists that are remembered; beyond that, each list stays its own. */
const MAX_LISTS = 4096;

const lists = new Map<string, readonly (number | string)[]>();
const EMPTY: readonly never[] = Object.freeze([]);

/** A list with the same values, not to be changed. */
export function sharedList<T extends number | string>(list: readonly T[] | null): readonly T[] {
  if (list === null || list.length === 0) return EMPTY;
  const key = `${typeof list[0]}:${list.join()}`;
  const known = lists.get(key);
  // The key says the type of the values, and ids hold no comma.
  if (known !== undefined) return known as readonly T[];
  if (lists.size < MAX_LISTS) lists.set(key, list);
  return list;
}
