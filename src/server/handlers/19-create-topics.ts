/**
 * CreateTopics: makes topics, all or none of each.
 *
 * Decided by the controller; see `forwarded.ts`. Version 8 is twinlog's own (rules A1, A9).
 */
import {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../../protocol/messages/19-create-topics.ts';
import { forwarded } from '../forwarded.ts';

/** API 19. */
export const createTopics = forwarded({
  request: CreateTopicsRequest,
  response: CreateTopicsResponse,
  versions: '2-7',
  unlistedVersions: '8',
});
