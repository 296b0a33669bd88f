/**
 * Batches written by Apache Kafka 4.2 (MemoryRecords of kafka-clients), as fixtures.
 *
 * The three records are `KAFKA_RECORDS`; all batches but the markers hold them (`legacy`, message
 * format 1, holds the second alone).
 */

function bytes(hex: string): Uint8Array {
  return new Uint8Array(Buffer.from(hex.replace(/\s/g, ''), 'hex'));
}

function text(value: string): Uint8Array {
  return new Uint8Array(Buffer.from(value));
}

export const KAFKA_RECORDS = [
  {
    timestamp: 1_700_000_000_000n,
    key: text('k1'),
    value: text('v1'),
    headers: [
      { key: 'h1', value: text('v1') },
      { key: 'h1', value: null },
    ],
  },
  { timestamp: 1_700_000_000_500n, key: null, value: text('zwei'), headers: [] },
  { timestamp: 1_699_999_999_000n, key: text('k3'), value: null, headers: [] },
] as const;

export const KAFKA_BATCHES = {
  /** Offset 5,000,000,000, epoch 9, producer 2^32 + 5, sequence from 2^31 − 2. */
  idempotent: bytes(`
    000000012a05f2000000005c00000009029d6f1fef0000000000020000018bcfe568000000018bcfe569f40000
    00010000000500037ffffffe0000000328000000046b3104763104046831047631046831011600e8070201087a
    776569001200cf0f04046b330100`),
  /** Offset 7, epoch 2, producer −(2^32 + 7). */
  transactional: bytes(`
    00000000000000070000005c0000000202bb227f740010000000020000018bcfe568000000018bcfe569f4ffff
    fffefffffff90001000000000000000328000000046b3104763104046831047631046831011600e8070201087a
    776569001200cf0f04046b330100`),
  /** Offset 3, no producer. */
  gzip: bytes(`
    00000000000000030000006dffffffff02b0551b450001000000020000018bcfe568000000018bcfe569f4ffff
    ffffffffffffffffffffffff000000031f8b08000000000000ffd360606060c9366429336461c9005319868c62
    0c2fd8991839aaca5333198418cef3b3b0641b333200001c550bd42b000000`),
  /** Offset 12, epoch 4, producer 4001 epoch 2, coordinator epoch 8. */
  commit: bytes(`
    000000000000000c000000420000000402269e4fb10030000000000000018bcfe56be80000018bcfe56be80000
    000000000fa10002ffffffff000000012000000008000000010c00000000000800`),
  /** Offset 13, else as the commit. */
  abort: bytes(`
    000000000000000d000000420000000402d2a099f90030000000000000018bcfe56be80000018bcfe56be80000
    000000000fa10002ffffffff000000012000000008000000000c00000000000800`),
  /** Offset 3. */
  legacy: bytes(`
    00000000000000030000001a6cdc6fdb01000000018bcfe569f4ffffffff000000047a776569`),
} as const;
