/**
 * Who a guest is: what a restart keeps, what makes it a new incarnation, what it refuses.
 */
import assert from 'node:assert/strict';
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, it, type TestContext } from 'node:test';
import {
  GUEST_IDENTITY_FILE,
  type GuestIdentity,
  GuestIdentityFile,
  type GuestStart,
  mayKeepIncarnation,
  nodeIdProblem,
} from '../../src/guest/identity.ts';
import type { BrokerRegistrationImage } from '../../src/metadata/image.ts';
import { readMetaProperties, writeMetaProperties } from '../../src/storage/meta-properties.ts';
import { broker, id, imageOf } from '../metadata/harness.ts';
import { fakeRuntime, ManualClock } from '../replication/fakes.ts';

const runtime = fakeRuntime(new ManualClock());

function dataDir(t: TestContext): string {
  const directory = mkdtempSync(join(tmpdir(), 'twinlog-identity-'));
  t.after(() => rmSync(directory, { recursive: true }));
  return directory;
}

/** What the controller has registered under the incarnation. */
function registered(incarnation: string, stopping = false): BrokerRegistrationImage {
  const found = imageOf([broker(7, { stopping })]).brokers.get(7);
  assert.ok(found !== undefined);
  return { ...found, incarnationId: incarnation as BrokerRegistrationImage['incarnationId'] };
}

const start = (wish: Partial<GuestStart> = {}): GuestStart => ({
  clusterId: 'c',
  bootId: 'boot-1',
  recoveryCutNothing: true,
  registration: undefined,
  ...wish,
});

describe('mayKeepIncarnation', () => {
  const known: GuestIdentity = {
    nodeId: 7,
    directoryId: id(1),
    incarnationId: id(2),
    brokerEpoch: 40,
    bootId: 'boot-1',
  };
  const rows: [why: string, start: GuestStart, keeps: boolean][] = [
    ['the process alone ended', start({ registration: registered(id(2)) }), true],
    ['it was never registered, or has been unregistered', start(), true],
    ['the machine went down', start({ bootId: 'boot-2' }), false],
    ['recovery cut a log', start({ recoveryCutNothing: false }), false],
    ['it shut down in good order', start({ registration: registered(id(2), true) }), false],
    ['another one has registered since', start({ registration: registered(id(3)) }), false],
  ];
  for (const [why, wish, keeps] of rows) {
    it(`G4: ${keeps ? 'yes' : 'no'}, when ${why}`, () => {
      assert.equal(mayKeepIncarnation(known, wish), keeps);
    });
  }
});

describe('GuestIdentityFile', () => {
  it('G4: a restart finds incarnation and epoch; a lost machine only the epoch', (t) => {
    const directory = dataDir(t);
    const first = GuestIdentityFile.open(runtime, directory, 7);
    assert.equal(first.opened.clusterId, undefined);
    const made = first.begin(start());
    assert.equal(made.brokerEpoch, -1);
    assert.equal(made.directoryId, first.opened.directoryId);
    first.registered(44);

    const second = GuestIdentityFile.open(runtime, directory, 7);
    assert.deepEqual(second.opened, { nodeId: 7, directoryId: made.directoryId, clusterId: 'c' });
    assert.deepEqual(second.begin(start()), { ...made, brokerEpoch: 44 });

    const third = GuestIdentityFile.open(runtime, directory, 7).begin(start({ bootId: 'boot-2' }));
    assert.notEqual(third.incarnationId, made.incarnationId);
    assert.deepEqual(
      { ...third, incarnationId: made.incarnationId },
      {
        ...made,
        brokerEpoch: 44,
        bootId: 'boot-2',
      },
    );
    const { clusterId, nodeId, directoryId } = readMetaProperties(runtime.disk, directory) ?? {};
    assert.deepEqual([clusterId, nodeId, directoryId], ['c', 7, made.directoryId]);
  });

  it('opening writes nothing', (t) => {
    const directory = dataDir(t);
    GuestIdentityFile.open(runtime, directory, 7);
    assert.equal(readMetaProperties(runtime.disk, directory), undefined);
    assert.equal(runtime.disk.readFile(join(directory, GUEST_IDENTITY_FILE)), undefined);
  });

  it('refuses what belongs to another node, cluster or kind of broker', (t) => {
    const directory = dataDir(t);
    GuestIdentityFile.open(runtime, directory, 7).begin(start());
    assert.throws(() => GuestIdentityFile.open(runtime, directory, 8), /belongs to node 7/);
    const again = GuestIdentityFile.open(runtime, directory, 7);
    assert.throws(() => again.begin(start({ clusterId: 'd' })), /cluster c, .* of d:/);
    const broker = dataDir(t);
    writeMetaProperties(runtime.disk, broker, { clusterId: 'c', nodeId: 7, directoryId: id(1) });
    assert.throws(() => GuestIdentityFile.open(runtime, broker, 7), /is no guest/);
  });

  it('takes a damaged file for what it is', (t) => {
    for (const damage of [
      (text: string) => text.slice(0, 20),
      (text: string) => text.replace(/"brokerEpoch": -1/, '"brokerEpoch": "x"'),
      (text: string) => text.replace(/"incarnationId": "./, '"incarnationId": "'),
    ]) {
      const directory = dataDir(t);
      GuestIdentityFile.open(runtime, directory, 7).begin(start());
      const path = join(directory, GUEST_IDENTITY_FILE);
      writeFileSync(path, damage(readFileSync(path, 'utf8')));
      assert.throws(() => GuestIdentityFile.open(runtime, directory, 7), /guest-identity\.json: /);
    }
  });
});

describe('nodeIdProblem', () => {
  const image = imageOf([broker(1), broker(7)]);
  const problem = (nodeId: number, directory: number): string | undefined =>
    nodeIdProblem(image, [100, 101], { nodeId, directoryId: id(directory) });

  it('G11: a free id, and one that this directory has registered, may be used', () => {
    assert.equal(problem(8, 1), undefined);
    assert.equal(problem(7, 2007), undefined);
  });

  it('G11: that of a controller, or of a broker with another directory, may not', () => {
    assert.match(problem(100, 1) ?? '', /100 is that of a controller/);
    assert.match(problem(1, 2007) ?? '', /Node id 1 is registered by a broker with another data/);
  });
});
