/**
 * DeleteTopics: removes topics by name or id.
 *
 * Decided by the controller; see `forwarded.ts`.
 */
import {
  DeleteTopicsRequest,
  DeleteTopicsResponse,
} from '../../protocol/messages/20-delete-topics.ts';
import { forwarded } from '../forwarded.ts';

/** API 20. */
export const deleteTopics = forwarded({
  request: DeleteTopicsRequest,
  response: DeleteTopicsResponse,
  versions: '1-6',
});
