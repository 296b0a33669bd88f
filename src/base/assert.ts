/**
 * Faults: conditions that must never happen, whatever clients, disks or networks do.
 *
 * A Fault means that our own reasoning is wrong or that a log is corrupt below its recovery point;
 * the process reports it and stops. Bad input is never a Fault: it is answered with an error code.
 */

/** A broken invariant. Never caught except to report it and stop. */
export class Fault extends Error {
  override readonly name = 'Fault';
}

/** Throws a {@link Fault} with `message` unless `condition` holds. */
export function assert(condition: unknown, message: string): asserts condition {
  if (!condition) throw new Fault(message);
}

/** Marks code that the type checker proves cannot run. */
export function unreachable(value: never): never {
  throw new Fault(`unreachable value: ${String(value)}`);
}

/** The value, or a {@link Fault} naming `what` is missing. */
export function present<T>(value: T | undefined | null, what: string): T {
  if (value === undefined || value === null) throw new Fault(`missing: ${what}`);
  return value;
}
