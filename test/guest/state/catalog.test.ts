/**
 * Rows of mirrors, mirrored topics and jobs: on the wire, and as an overlay on the metadata.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { type Uuid, ZERO_UUID } from '../../../src/base/uuid.ts';
import {
  type CatalogKey,
  catalogKeyText,
  decodeCatalogKey,
  decodeJobs,
  decodeSettings,
  decodeTopic,
  encodeCatalogKey,
  encodeJobs,
  encodeSettings,
  encodeTopic,
  MirrorCatalog,
  type MirrorTopicRow,
} from '../../../src/guest/state/catalog.ts';
import { ConfigResourceType, emptyImage } from '../../../src/metadata/image.ts';
import { applyRecords } from '../../../src/metadata/image-delta.ts';
import { decodeRowKey, encodeRowKey } from '../../../src/mirror/state-row.ts';

const ID = 'dG9waWMtdG9waWMtdG9waQ' as Uuid;
const TOPIC: MirrorTopicRow = {
  mirrorName: 'm',
  removed: false,
  membershipOffset: 2 ** 40,
  topicId: ID,
  sourceTopicId: ZERO_UUID,
  finalConfigs: [
    { name: 'retention.ms', value: '5' },
    { name: 'min.insync.replicas', value: null },
  ],
  targetReplicationFactor: 3,
};
const settings = (entries: Record<string, string>) => ({
  configs: new Map(Object.entries(entries)),
  producerIdTag: 4095,
});

test('G22 keys and values survive the round trip, the record type in front of the key', () => {
  const keys: [CatalogKey, number][] = [
    [{ type: 'settings', mirror: 'm' }, 3],
    [{ type: 'topic', topic: 't' }, 4],
    [{ type: 'jobs', mirror: 'm' }, 5],
  ];
  for (const [key, type] of keys) {
    const bytes = encodeCatalogKey(key);
    assert.deepEqual([...bytes], [0, type, 0, 1, key.type === 'topic' ? 0x74 : 0x6d]);
    assert.deepEqual(decodeCatalogKey(bytes), key);
    assert.equal(decodeRowKey(bytes), undefined);
  }
  const row = encodeRowKey({ mirror: 'm', topicId: ID, partition: 0 });
  assert.equal(decodeCatalogKey(row), undefined);
  const given = settings({ b: '2', a: '1' });
  assert.deepEqual(decodeSettings(encodeSettings(given)), given);
  // The order in which settings were made is nothing that tells two rows apart.
  assert.deepEqual(encodeSettings(given), encodeSettings(settings({ a: '1', b: '2' })));
  assert.deepEqual(decodeTopic(encodeTopic(TOPIC)), TOPIC);
  const taken = { ...TOPIC, takeoverOffsets: [0, 2 ** 40] };
  assert.deepEqual(decodeTopic(encodeTopic(taken)), taken);
  const closing = { ...TOPIC, removed: true, openTransactions: 1 };
  assert.deepEqual(decodeTopic(encodeTopic(closing)), closing);
  const jobs = { guestId: 7, claimedAtMs: 1_700_000_000_000 };
  assert.deepEqual(decodeJobs(encodeJobs(jobs)), jobs);
});

test('C3 texts of the three kinds never meet', () => {
  const texts = [
    catalogKeyText({ type: 'settings', mirror: 'x' }),
    catalogKeyText({ type: 'topic', topic: 'x' }),
    catalogKeyText({ type: 'jobs', mirror: 'x' }),
  ];
  assert.equal(new Set(texts).size, 3);
});

test('O1 O2 S7: the overlay gives the image settings and memberships, and takes them away', () => {
  const catalog = new MirrorCatalog();
  let image = emptyImage('here');
  const replay = (key: CatalogKey, value: Uint8Array | null): number => {
    const records = catalog.replay(key, value);
    image = applyRecords(image, records, image.offset, 0).image;
    return records.length;
  };
  const mirror: CatalogKey = { type: 'settings', mirror: 'm' };
  replay(mirror, encodeSettings(settings({ 'bootstrap.servers': 'a:1', 'retry.backoff.ms': '5' })));
  assert.equal(replay(mirror, encodeSettings(settings({ 'bootstrap.servers': 'b:1' }))), 2);
  assert.deepEqual(
    [...image.configs(ConfigResourceType.MIRROR, 'm')],
    [['bootstrap.servers', 'b:1']],
  );
  assert.deepEqual(catalog.mirrors(), ['m']);
  const key: CatalogKey = { type: 'topic', topic: 't' };
  assert.equal(replay(key, encodeTopic(TOPIC)), 1);
  assert.deepEqual(image.membership('t'), { mirror: 'm', removed: false, offset: 2 ** 40 });
  // What says nothing about membership says nothing to the image.
  assert.equal(replay(key, encodeTopic({ ...TOPIC, topicId: ZERO_UUID })), 0);
  assert.equal(catalog.topic('t')?.topicId, ZERO_UUID);
  replay(key, encodeTopic({ ...TOPIC, removed: true, membershipOffset: 2 ** 40 + 1 }));
  assert.deepEqual(image.membership('t'), { mirror: 'm', removed: true, offset: 2 ** 40 + 1 });
  assert.deepEqual(
    catalog.topics('m').map(([name]) => name),
    ['t'],
  );
  replay(key, null);
  assert.equal(replay(key, null), 0);
  replay(mirror, null);
  assert.equal(image.membership('t'), undefined);
  assert.equal(image.configsByResource.size, 0);
  assert.deepEqual(catalog.mirrors(), []);
});

test('G23 jobs say who runs them and leave the image alone', () => {
  const catalog = new MirrorCatalog();
  const key: CatalogKey = { type: 'jobs', mirror: 'm' };
  assert.deepEqual(catalog.replay(key, encodeJobs({ guestId: 7, claimedAtMs: 1 })), []);
  assert.deepEqual(catalog.jobs('m'), { guestId: 7, claimedAtMs: 1 });
  assert.deepEqual(catalog.encoded(key), encodeJobs({ guestId: 7, claimedAtMs: 1 }));
  catalog.replay(key, null);
  assert.equal(catalog.jobs('m'), undefined);
  assert.equal(catalog.encoded(key), undefined);
});
