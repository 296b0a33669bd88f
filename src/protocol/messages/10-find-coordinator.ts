/**
 * API 10, FindCoordinator.
 *
 * Who owns a group, a transactional id or another coordinated key.
 */
import { array, int8, int16, int32, type MessageOf, message, nullable, string } from '../schema.ts';

/** Request of API 10, versions 0-6. */
export const FindCoordinatorRequest = message({
  apiKey: 10,
  name: 'FindCoordinatorRequest',
  type: 'request',
  validVersions: '0-6',
  flexibleVersions: '3+',
  fields: {
    key: string('0-3'),
    keyType: int8('1+', { default: 0 }),
    coordinatorKeys: array('4+', string),
  },
});
/** A decoded {@link FindCoordinatorRequest}. */
export type FindCoordinatorRequest = MessageOf<typeof FindCoordinatorRequest>;

/** Response of API 10. */
export const FindCoordinatorResponse = message({
  apiKey: 10,
  name: 'FindCoordinatorResponse',
  type: 'response',
  validVersions: '0-6',
  flexibleVersions: '3+',
  fields: {
    throttleTimeMs: int32('1+', { ignorable: true }),
    errorCode: int16('0-3'),
    errorMessage: nullable(string('1-3', { ignorable: true }), '1-3'),
    nodeId: int32('0-3'),
    host: string('0-3'),
    port: int32('0-3'),
    coordinators: array('4+', {
      key: string('4+'),
      nodeId: int32('4+'),
      host: string('4+'),
      port: int32('4+'),
      errorCode: int16('4+'),
      errorMessage: nullable(string('4+', { ignorable: true }), '4+'),
    }),
  },
});
/** A decoded {@link FindCoordinatorResponse}. */
export type FindCoordinatorResponse = MessageOf<typeof FindCoordinatorResponse>;
