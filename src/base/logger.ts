/**
 * The logging port: what happened, as a sentence and a bag of fields.
 *
 * Given at construction; pino stands behind it in the real process, the trace in the simulator.
 * Secrets and record contents are never logged.
 */

/** Writes structured log lines. `child` adds fields to every line below it. */
export interface Logger {
  debug(message: string, fields?: Record<string, unknown>): void;
  info(message: string, fields?: Record<string, unknown>): void;
  warn(message: string, fields?: Record<string, unknown>): void;
  error(message: string, fields?: Record<string, unknown>): void;
  child(fields: Record<string, unknown>): Logger;
}

/** Drops everything. */
export const silentLogger: Logger = {
  debug: () => {},
  info: () => {},
  warn: () => {},
  error: () => {},
  child: () => silentLogger,
};
