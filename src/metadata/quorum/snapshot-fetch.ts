/**
 * Reads a metadata snapshot from the active controller, piece by piece (rule G1).
 *
 * Used by the observer. Pieces are cut anywhere, so the whole snapshot is put together before it is
 * read; it is a file of record batches between two control records. A leader that changes or drops
 * the snapshot meanwhile ends the read: the observer then asks for the log again.
 */
import { MalformedBytes } from '../../base/bytes.ts';
import type { Uuid } from '../../base/uuid.ts';
import type { Compression } from '../../io/runtime.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import {
  FetchSnapshotRequest,
  FetchSnapshotResponse,
} from '../../protocol/messages/59-fetch-snapshot.ts';
import { forEachBatch } from '../../protocol/record-batch.ts';
import { METADATA_TOPIC } from '../../storage/log-manager.ts';
import type { MetadataRecord } from '../record-framing.ts';
import { batchRecords } from './metadata-tail.ts';
import {
  isPassing,
  type LeaderConnection,
  type QuorumClient,
  QuorumUnavailable,
} from './quorum-client.ts';

/** Bytes asked for at a time. */
const PIECE_BYTES = 8 * 1024 * 1024;
/** Largest snapshot taken, in bytes: it is held in memory while it is read. */
const MAX_SNAPSHOT_BYTES = 1024 * 1024 * 1024;

/** Names a snapshot: it holds what lies below `endOffset`. */
export interface SnapshotId {
  readonly endOffset: number;
  readonly epoch: number;
}

/** Who asks. */
export interface SnapshotReader {
  readonly client: QuorumClient;
  readonly compression: Compression;
  readonly nodeId: number;
  readonly directoryId: Uuid;
}

type Piece = FetchSnapshotResponse['topics'][number]['partitions'][number];

/** The records of a snapshot; undefined when the leader has to be asked for the log again. */
export async function fetchSnapshot(
  at: LeaderConnection,
  id: SnapshotId,
  reader: SnapshotReader,
): Promise<MetadataRecord[] | undefined> {
  let bytes: Uint8Array | undefined;
  for (let position = 0; bytes === undefined || position < bytes.length; ) {
    const piece = await fetchPiece(at, id, position, reader);
    if (piece === undefined) return undefined;
    bytes ??= new Uint8Array(sizeOf(piece));
    const { unalignedRecords: part } = piece;
    if (piece.position !== position || part.length === 0 || position + part.length > bytes.length) {
      throw new QuorumUnavailable(`snapshot ${id.endOffset} does not go on at ${position}`);
    }
    bytes.set(part, position);
    position += part.length;
  }
  try {
    return recordsOf(bytes, reader.compression);
  } catch (error) {
    if (!(error instanceof MalformedBytes)) throw error;
    throw new QuorumUnavailable(`snapshot ${id.endOffset} is malformed: ${error.message}`);
  }
}

function sizeOf({ size }: Piece): number {
  if (size > 0 && size <= MAX_SNAPSHOT_BYTES) return size;
  throw new QuorumUnavailable(`a metadata snapshot of ${size} bytes is not taken`);
}

function recordsOf(bytes: Uint8Array, compression: Compression): MetadataRecord[] {
  const records: MetadataRecord[] = [];
  const scan = forEachBatch(bytes, 0, bytes.length, (batch) => {
    for (const record of batchRecords(batch, compression)) records.push(record);
  });
  if (!scan.ok) throw new MalformedBytes(`snapshot batch: ${scan.problem}`, scan.position);
  return records;
}

async function fetchPiece(
  { leader, connection }: LeaderConnection,
  id: SnapshotId,
  position: number,
  { client, nodeId, directoryId }: SnapshotReader,
): Promise<Piece | undefined> {
  const partition = {
    partition: 0,
    currentLeaderEpoch: leader.epoch,
    snapshotId: { endOffset: id.endOffset, epoch: id.epoch },
    position,
    replicaDirectoryId: directoryId,
  };
  const request = {
    clusterId: client.clusterId ?? null,
    replicaId: nodeId,
    maxBytes: PIECE_BYTES,
    topics: [{ name: METADATA_TOPIC, partitions: [partition] }],
  };
  let response: FetchSnapshotResponse;
  try {
    response = await connection.send(FetchSnapshotRequest, FetchSnapshotResponse, request);
  } catch (error) {
    if (isPassing(error)) client.lost(leader);
    throw error;
  }
  const piece = response.topics[0]?.partitions[0];
  if (response.errorCode !== errors.NONE.code || piece === undefined) {
    client.lost(leader);
    throw new QuorumUnavailable(`FetchSnapshot failed: ${errorName(response.errorCode)}`);
  }
  return checked(piece, response, { leader, connection }, client);
}

function checked(
  piece: Piece,
  { nodeEndpoints }: FetchSnapshotResponse,
  { leader }: LeaderConnection,
  client: QuorumClient,
): Piece | undefined {
  switch (piece.errorCode) {
    case errors.NONE.code:
      return piece;
    // A newer snapshot has taken its place.
    case errors.SNAPSHOT_NOT_FOUND.code:
      return undefined;
    default:
      client.lost(leader);
      client.heard({ ...piece.currentLeader, endpoints: nodeEndpoints });
      throw new QuorumUnavailable(`FetchSnapshot refused: ${errorName(piece.errorCode)}`);
  }
}
