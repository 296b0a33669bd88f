/**
 * DescribeGroups: shows groups and their members.
 *
 * Served by the group coordinator of the group's partition of `__consumer_offsets`.
 */
import {
  DescribeGroupsRequest,
  DescribeGroupsResponse,
} from '../../protocol/messages/15-describe-groups.ts';
import { apiHandler } from '../api-handler.ts';

/** API 15. */
export const describeGroups = apiHandler({
  request: DescribeGroupsRequest,
  response: DescribeGroupsResponse,
  versions: '0-6',
  handle: ({ groups }, request, { apiVersion }) => groups.describeGroups(request, apiVersion),
});
