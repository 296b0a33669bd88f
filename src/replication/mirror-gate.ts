/**
 * The mirror gate: the port through which a partition learns that it is read-only.
 *
 * Owned by replication because the one gate of a partition's appends (`Partition.append`) asks it;
 * implemented by the mirror layer, which knows the durable mirror states, and given at
 * construction. Rule R1: membership without a durably STOPPED state means read-only; unknown,
 * loading, paused and failed are read-only too. The gate is asked at each append and must answer
 * from memory.
 */
import type { Uuid } from '../base/uuid.ts';

/** Why a partition takes no writes of its own (rules R1, R3). */
export interface ReadOnlyReason {
  readonly topic: string;
  /** The mirror's name. */
  readonly mirror: string;
  /** The mirror partition state as text (`MIRRORING`, `UNKNOWN`, …). */
  readonly state: string;
}

/** See the file header. */
export interface MirrorGate {
  /** Undefined: writable. */
  readOnly(topicId: Uuid, topic: string, partition: number): ReadOnlyReason | undefined;
}

/** The gate of a broker without mirrors. */
export const openGate: MirrorGate = { readOnly: () => undefined };

/** The message that goes with POLICY_VIOLATION to whoever tries to write (rule R3). */
export function readOnlyMessage(reason: ReadOnlyReason): string {
  return (
    `ReadOnlyTopicException: topic ${reason.topic} is mirrored by mirror ${reason.mirror} ` +
    `(state ${reason.state}) and takes no writes until it is removed from the mirror and STOPPED.`
  );
}
