/**
 * What lies under `lost-and-found` on a simulated machine (rule T4).
 *
 * Read through the running process's disk port, as an operator would find it.
 */
import { present } from '../base/assert.ts';
import type { SimCluster } from './sim-cluster.ts';

/** Segment files kept for a partition, finished copies only. */
export function keptTails(
  cluster: SimCluster,
  logDirectory: string,
  partition: { readonly topic: string; readonly index: number },
  topicId: string,
): Uint8Array[] {
  const { disk } = present(cluster.runtime, `a process on ${cluster.machine}`);
  const dataDirectory = logDirectory.slice(0, logDirectory.lastIndexOf('/'));
  const name = `${partition.topic}-${topicId}-${partition.index}`;
  const parent = `${dataDirectory}/lost-and-found/${name}`;
  const files: Uint8Array[] = [];
  for (const copy of disk.list(parent) ?? []) {
    if (!copy.isDirectory || copy.name.endsWith('.unfinished')) continue;
    for (const { name: file } of disk.list(`${parent}/${copy.name}`) ?? []) {
      const bytes = file.endsWith('.log')
        ? disk.readFile(`${parent}/${copy.name}/${file}`)
        : undefined;
      if (bytes !== undefined) files.push(bytes);
    }
  }
  return files;
}
