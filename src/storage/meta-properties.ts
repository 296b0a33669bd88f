/**
 * `meta.properties`: which cluster and which node a log directory belongs to.
 *
 * Written once when a directory is formatted, checked at every start before anything else of the
 * directory is touched. Version 1, as Apache Kafka 4 in KRaft mode writes it.
 */
import { parseUuid, type Uuid } from '../base/uuid.ts';
import type { Disk } from '../io/runtime.ts';
import { CorruptCheckpoint, writeFileAtomically } from './checkpoints.ts';

/** The file's name in a log directory. */
export const META_PROPERTIES_FILE = 'meta.properties';

/** The identity of a log directory. */
export interface MetaProperties {
  readonly clusterId: string;
  readonly nodeId: number;
  /** Absent in directories formatted by old versions. */
  readonly directoryId: Uuid | undefined;
}

/** Reads the identity; undefined for a directory that was never formatted. */
export function readMetaProperties(disk: Disk, logDir: string): MetaProperties | undefined {
  const path = `${logDir}/${META_PROPERTIES_FILE}`;
  const bytes = disk.readFile(path);
  if (bytes === undefined) return undefined;
  const properties = new Map<string, string>();
  for (const line of Buffer.from(bytes).toString('utf8').split('\n')) {
    const match = /^\s*([^#!=:\s][^=:\s]*)\s*[=:]\s*(.*?)\s*$/.exec(line);
    if (match !== null) properties.set(match[1] as string, match[2] as string);
  }
  if (properties.get('version') !== '1') {
    throw new CorruptCheckpoint(`${path}: version ${properties.get('version')} is not supported`);
  }
  const clusterId = properties.get('cluster.id');
  const nodeId = properties.get('node.id');
  if (clusterId === undefined || nodeId === undefined || !/^[0-9]+$/.test(nodeId)) {
    throw new CorruptCheckpoint(`${path}: cluster.id or node.id is missing`);
  }
  return {
    clusterId,
    nodeId: Number(nodeId),
    directoryId: parseUuid(properties.get('directory.id') ?? ''),
  };
}

/** Writes the identity of a new directory. */
export function writeMetaProperties(disk: Disk, logDir: string, meta: MetaProperties): void {
  const lines = [
    '#',
    `cluster.id=${meta.clusterId}`,
    ...(meta.directoryId === undefined ? [] : [`directory.id=${meta.directoryId}`]),
    `node.id=${meta.nodeId}`,
    'version=1',
    '',
  ];
  writeFileAtomically(disk, `${logDir}/${META_PROPERTIES_FILE}`, lines.join('\n'));
}
