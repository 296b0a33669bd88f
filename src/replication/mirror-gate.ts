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
import { type ErrorCode, errors } from '../protocol/errors.ts';

/** Lower than every id that a mirrored producer has in a guest's logs (G20). */
export const FIRST_MIRRORED_ID = 2n ** 40n;

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

/** What a partition answers that is read-only. */
export interface ReadOnlyRefusal {
  readonly error: Exclude<ErrorCode, 0>;
  readonly message: string;
}

/**
 * The answer to whoever tries to write (rule R3): POLICY_VIOLATION, which clients take as final.
 * While nobody knows the state yet, after a restart for example, the partition may prove writable:
 * then LEADER_NOT_AVAILABLE, upon which clients try again.
 */
export function readOnlyRefusal({ topic, mirror, state }: ReadOnlyReason): ReadOnlyRefusal {
  const known = state !== 'UNKNOWN';
  return {
    error: known ? errors.POLICY_VIOLATION.code : errors.LEADER_NOT_AVAILABLE.code,
    message:
      `ReadOnlyTopicException: topic ${topic} is mirrored by mirror ${mirror} ` +
      `(state ${state}) and takes no writes until it is removed from the mirror and STOPPED.`,
  };
}
