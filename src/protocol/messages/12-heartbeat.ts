/**
 * API 12, Heartbeat.
 *
 * Keeps a classic group member alive and learns of rebalances.
 */
import { int16, int32, type MessageOf, message, nullable, string } from '../schema.ts';

/** Request of API 12, versions 0-4. */
export const HeartbeatRequest = message({
  apiKey: 12,
  name: 'HeartbeatRequest',
  type: 'request',
  validVersions: '0-4',
  flexibleVersions: '4+',
  fields: {
    groupId: string('0+'),
    generationId: int32('0+'),
    memberId: string('0+'),
    groupInstanceId: nullable(string('3+'), '3+', { default: null }),
  },
});
/** A decoded {@link HeartbeatRequest}. */
export type HeartbeatRequest = MessageOf<typeof HeartbeatRequest>;

/** Response of API 12. */
export const HeartbeatResponse = message({
  apiKey: 12,
  name: 'HeartbeatResponse',
  type: 'response',
  validVersions: '0-4',
  flexibleVersions: '4+',
  fields: {
    throttleTimeMs: int32('1+', { ignorable: true }),
    errorCode: int16('0+'),
  },
});
/** A decoded {@link HeartbeatResponse}. */
export type HeartbeatResponse = MessageOf<typeof HeartbeatResponse>;
