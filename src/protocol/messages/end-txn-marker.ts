/**
 * Value of the control record that ends a transaction in a partition.
 *
 * Its key carries the type: abort 0, commit 1.
 */
import { int32, type MessageOf, message } from '../schema.ts';

/** Versions 0. */
export const EndTxnMarker = message({
  name: 'EndTxnMarker',
  type: 'data',
  validVersions: '0',
  flexibleVersions: 'none',
  fields: {
    coordinatorEpoch: int32('0+'),
  },
});
/** A decoded {@link EndTxnMarker}. */
export type EndTxnMarker = MessageOf<typeof EndTxnMarker>;
