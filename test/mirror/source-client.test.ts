/** What the end of a connection means for a mirror. */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { sourceFailure } from '../../src/mirror/source-client.ts';
import { ConnectionError } from '../../src/protocol/kafka-connection.ts';

test('S5 each cause of a connection is one of a mirror, the message stays', () => {
  const causes: Readonly<Record<string, string>> = {
    authentication: 'SOURCE_AUTHENTICATION_FAILED',
    timeout: 'SOURCE_TIMED_OUT',
    malformed: 'SOURCE_ERROR',
    unsupportedVersion: 'SOURCE_ERROR',
    overloaded: 'SOURCE_ERROR',
    closed: 'SOURCE_UNREACHABLE',
    ECONNREFUSED: 'SOURCE_UNREACHABLE',
  };
  for (const [cause, expected] of Object.entries(causes)) {
    const failure = sourceFailure(new ConnectionError(cause, `because of ${cause}`));
    assert.deepEqual([failure.mirrorCause, failure.message], [expected, `because of ${cause}`]);
  }
});
