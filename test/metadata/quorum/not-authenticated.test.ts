/** Controllers that do not take this node, or that it does not trust. */
import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { silentLogger } from '../../../src/base/logger.ts';
import { ZERO_UUID } from '../../../src/base/uuid.ts';
import { nodeRuntime } from '../../../src/io/node/node-runtime.ts';
import { QuorumUnavailable } from '../../../src/metadata/quorum/quorum-client.ts';
import { RemoteController } from '../../../src/metadata/quorum/remote-controller.ts';
import { CertificateAuthority } from '../../io/certificates.ts';
import { FakeQuorum } from './fake-quorum.ts';

const NOBODY = {
  clusterId: undefined,
  nodeId: 7,
  directoryId: ZERO_UUID,
  refence: () => Promise.resolve(),
  schemasOf: () => undefined,
  onFatal: assert.fail,
} as const;

test('G34 the first contact fails at once with the reason, not after half a minute', async (t) => {
  const directory = mkdtempSync(join(tmpdir(), 'twinlog-quorum-'));
  t.after(() => rmSync(directory, { recursive: true }));
  const identity = new CertificateAuthority(directory).issue('controller', '/CN=controller');
  const trusted = new CertificateAuthority(join(directory, 'other'), 'other').certificate;
  const runtime = nodeRuntime({ logger: silentLogger });
  const tls = { identity, clientAuth: 'none' } as const;
  const listener = await runtime.network.listen('127.0.0.1', 0, () => {}, tls);
  t.after(() => listener.close());
  let timers = 0;
  const clock = {
    ...runtime.clock,
    setTimer: (delayMs: number, callback: () => void) => {
      timers++;
      return runtime.clock.setTimer(delayMs, callback);
    },
  };
  const controller = new RemoteController(
    { ...runtime, clock },
    {
      bootstrapControllers: [{ host: '127.0.0.1', port: listener.port }],
      security: { tls: { trusted, checkHostName: true } },
      ...NOBODY,
    },
  );
  t.after(() => controller.close());
  await assert.rejects(controller.clusterId(), (error: Error) => {
    assert.ok(error instanceof QuorumUnavailable);
    assert.match(error.message, /127\.0\.0\.1:\d+: TLS: .*certificate/);
    return true;
  });
  assert.equal(timers, 0, 'nothing was tried again');
});

test('G34 so it does where the right is missing, and says which', async (t) => {
  const quorum = new FakeQuorum(1);
  quorum.isForbidden = true;
  const bootstrapControllers = [FakeQuorum.address(1)];
  const controller = new RemoteController(quorum.runtime, { ...NOBODY, bootstrapControllers });
  t.after(() => controller.close());
  await assert.rejects(controller.clusterId(), {
    message: /c1:9093 does not let this node read .* needs CLUSTER_ACTION on the cluster/,
  });
  assert.deepEqual(quorum.asked, ['1 60', '1 1'], 'nothing was tried again');
});
