/**
 * IncrementalAlterConfigs: sets and removes overrides, one at a time.
 *
 * Decided by the controller; see `forwarded.ts`.
 */
import {
  IncrementalAlterConfigsRequest,
  IncrementalAlterConfigsResponse,
} from '../../protocol/messages/44-incremental-alter-configs.ts';
import { forwarded } from '../forwarded.ts';

/** API 44. */
export const incrementalAlterConfigs = forwarded({
  request: IncrementalAlterConfigsRequest,
  response: IncrementalAlterConfigsResponse,
  versions: '0-1',
});
