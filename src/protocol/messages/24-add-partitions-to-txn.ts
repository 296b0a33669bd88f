/**
 * API 24, AddPartitionsToTxn.
 *
 * Adds partitions to a transaction; batched and used between brokers since version 4.
 */
import {
  array,
  bool,
  int16,
  int32,
  int64Exact,
  type MessageOf,
  message,
  string,
} from '../schema.ts';

const addPartitionsToTxnTopicFields = {
  name: string('0+'),
  partitions: array('0+', int32),
} as const;

/** Request of API 24, versions 0-5. */
export const AddPartitionsToTxnRequest = message({
  apiKey: 24,
  name: 'AddPartitionsToTxnRequest',
  type: 'request',
  validVersions: '0-5',
  flexibleVersions: '3+',
  fields: {
    transactions: array('4+', {
      transactionalId: string('4+'),
      producerId: int64Exact('4+'),
      producerEpoch: int16('4+'),
      verifyOnly: bool('4+', { default: false }),
      topics: array('4+', addPartitionsToTxnTopicFields),
    }),
    v3AndBelowTransactionalId: string('0-3'),
    v3AndBelowProducerId: int64Exact('0-3'),
    v3AndBelowProducerEpoch: int16('0-3'),
    v3AndBelowTopics: array('0-3', addPartitionsToTxnTopicFields),
  },
});
/** A decoded {@link AddPartitionsToTxnRequest}. */
export type AddPartitionsToTxnRequest = MessageOf<typeof AddPartitionsToTxnRequest>;

const addPartitionsToTxnPartitionResultFields = {
  partitionIndex: int32('0+'),
  partitionErrorCode: int16('0+'),
} as const;

const addPartitionsToTxnTopicResultFields = {
  name: string('0+'),
  resultsByPartition: array('0+', addPartitionsToTxnPartitionResultFields),
} as const;

/** Response of API 24. */
export const AddPartitionsToTxnResponse = message({
  apiKey: 24,
  name: 'AddPartitionsToTxnResponse',
  type: 'response',
  validVersions: '0-5',
  flexibleVersions: '3+',
  fields: {
    throttleTimeMs: int32('0+'),
    errorCode: int16('4+', { ignorable: true }),
    resultsByTransaction: array('4+', {
      transactionalId: string('4+'),
      topicResults: array('4+', addPartitionsToTxnTopicResultFields),
    }),
    resultsByTopicV3AndBelow: array('0-3', addPartitionsToTxnTopicResultFields),
  },
});
/** A decoded {@link AddPartitionsToTxnResponse}. */
export type AddPartitionsToTxnResponse = MessageOf<typeof AddPartitionsToTxnResponse>;
