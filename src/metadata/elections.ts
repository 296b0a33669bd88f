/**
 * Leader elections: which partitions change when a broker goes or comes, and how.
 *
 * Used by the decide functions for brokers. Invariants:
 * - A leader is always in the ISR and active; without such a replica the partition has none.
 * - The last replica in an ISR stays there when its broker goes: only it has everything.
 * - A record sets the leader only where the leader changes, since setting it starts a new epoch.
 */
import { isActive } from './decide.ts';
import { type MetadataImage, NO_LEADER, type PartitionRegistration } from './image.ts';
import { type MetadataRecord, metadataRecord } from './record-framing.ts';

/** Every partition of the image. */
export function* allPartitions(image: MetadataImage): Generator<PartitionRegistration> {
  for (const topic of image.topicsById.values()) yield* topic.partitions.values();
}

/** Changes that take a broker out of all ISRs and leaderships: it is fenced or is stopping. */
export function electWithout(image: MetadataImage, brokerId: number): MetadataRecord[] {
  const isAcceptable = (id: number): boolean => id !== brokerId && isActive(image.brokers.get(id));
  const records: MetadataRecord[] = [];
  for (const partition of allPartitions(image)) {
    if (!partition.isr.includes(brokerId)) continue;
    const rest = partition.isr.filter((id) => id !== brokerId);
    const record = changeRecord(partition, rest.length > 0 ? rest : partition.isr, isAcceptable);
    if (record !== undefined) records.push(record);
  }
  return records;
}

/** Changes that give partitions without a leader to a broker that has become active. */
export function electAmongLeaderless(image: MetadataImage, brokerId: number): MetadataRecord[] {
  const isAcceptable = (id: number): boolean => id === brokerId || isActive(image.brokers.get(id));
  const records: MetadataRecord[] = [];
  for (const partition of allPartitions(image)) {
    if (partition.leader !== NO_LEADER || !partition.isr.includes(brokerId)) continue;
    const record = changeRecord(partition, partition.isr, isAcceptable);
    if (record !== undefined) records.push(record);
  }
  return records;
}

function changeRecord(
  partition: PartitionRegistration,
  isr: readonly number[],
  isAcceptable: (brokerId: number) => boolean,
): MetadataRecord | undefined {
  const keeps = isr.includes(partition.leader) && isAcceptable(partition.leader);
  const leader = keeps
    ? partition.leader
    : (partition.replicas.find((id) => isr.includes(id) && isAcceptable(id)) ?? NO_LEADER);
  const isrChanges = isr.length !== partition.isr.length;
  if (leader === partition.leader && !isrChanges) return undefined;
  return metadataRecord('PartitionChangeRecord', {
    partitionId: partition.partition,
    topicId: partition.topicId,
    ...(leader === partition.leader ? {} : { leader }),
    ...(isrChanges ? { isr } : {}),
  });
}
