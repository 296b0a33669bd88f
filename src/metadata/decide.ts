/**
 * What all decide functions share: they read the image and return records and a response.
 *
 * A decide function is pure: the same image, context and request give the same decision, and
 * nothing has happened until the controller has made its records durable. The image a decision is
 * made on includes everything already appended, committed or not.
 */
import type { Uuid } from '../base/uuid.ts';
import type { ConfigValidators } from './config-validator.ts';
import type { BrokerRegistrationImage, MetadataImage } from './image.ts';
import type { MetadataRecord } from './record-framing.ts';

/** Records to append as one atomic batch (none: nothing changes), and the answer once durable. */
export interface Decision<R> {
  readonly records: readonly MetadataRecord[];
  readonly response: R;
}

/** What a decide function may know besides the request. */
export interface DecideContext {
  readonly image: MetadataImage;
  /** Offset that the first of the decision's records will get. */
  readonly nextOffset: number;
  readonly validators: ConfigValidators;
  /** For topics created without counts: num.partitions and default.replication.factor. */
  readonly defaultPartitions: number;
  readonly defaultReplicationFactor: number;
  readonly newUuid: () => Uuid;
}

/** Why one item of a request is refused. */
export interface Refusal {
  readonly error: number;
  readonly message: string;
}

/** Partitions that one request may create; more is a POLICY_VIOLATION, as in Apache Kafka. */
export const MAX_PARTITIONS_PER_REQUEST = 10_000;

/** A refusal; written as an expression so that checks read as one line each. */
export function refuse(error: number, message: string): Refusal {
  return { error, message };
}

/** Whether a value is a refusal rather than a result. */
export function isRefusal(value: unknown): value is Refusal {
  return typeof value === 'object' && value !== null && 'error' in value && 'message' in value;
}

/** Whether a broker may lead and be in sync: neither fenced nor shutting down. */
export function isActive(broker: BrokerRegistrationImage | undefined): boolean {
  return broker !== undefined && !broker.fenced && !broker.inControlledShutdown;
}

/** Values that occur more than once. */
export function duplicates<T>(values: Iterable<T>): Set<T> {
  const seen = new Set<T>();
  const twice = new Set<T>();
  for (const value of values) {
    if (seen.has(value)) twice.add(value);
    seen.add(value);
  }
  return twice;
}
