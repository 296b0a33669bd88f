/**
 * CreatePartitions: raises the partition count of topics.
 *
 * Decided by the controller; see `forwarded.ts`.
 */
import {
  CreatePartitionsRequest,
  CreatePartitionsResponse,
} from '../../protocol/messages/37-create-partitions.ts';
import { forwarded } from '../forwarded.ts';

/** API 37. */
export const createPartitions = forwarded({
  request: CreatePartitionsRequest,
  response: CreatePartitionsResponse,
  versions: '0-3',
});
