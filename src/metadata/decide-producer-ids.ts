/**
 * Decides AllocateProducerIds: reserves the next block for a broker (KIP-730).
 *
 * Called by the embedded controller. The next free id is in the metadata log, so no id is handed
 * out twice, whatever restarts.
 */
import { ErrorCode } from '../protocol/errors.ts';
import type { ProducerIdBlock } from './controller-port.ts';
import type { DecideContext, Decision } from './decide.ts';
import { brokerEpochError } from './decide-brokers.ts';
import { metadataRecord } from './record-framing.ts';

/** Ids in one block. */
export const PRODUCER_ID_BLOCK_SIZE = 1000;
/** Ids from here on could not be mirrored (rule P1). */
const MAX_PRODUCER_ID = 2n ** 56n - 2n;

/** Decides AllocateProducerIds. */
export function decideAllocateProducerIds(
  context: DecideContext,
  brokerId: number,
  brokerEpoch: number,
): Decision<ProducerIdBlock> {
  const error = brokerEpochError(context.image, brokerId, brokerEpoch);
  if (error !== 0) return { records: [], response: { error } };
  const firstProducerId = context.image.nextProducerId;
  const nextProducerId = firstProducerId + BigInt(PRODUCER_ID_BLOCK_SIZE);
  if (nextProducerId > MAX_PRODUCER_ID) {
    return { records: [], response: { error: ErrorCode.UNKNOWN_SERVER_ERROR } };
  }
  return {
    records: [metadataRecord('ProducerIdsRecord', { brokerId, brokerEpoch, nextProducerId })],
    response: { error: 0, firstProducerId, length: PRODUCER_ID_BLOCK_SIZE },
  };
}
