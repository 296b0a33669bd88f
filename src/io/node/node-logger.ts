/**
 * pino behind the Logger port: one JSON object a line, to standard error.
 *
 * Standard output stays free for what a command prints. Lines are written synchronously, so that
 * the last one before a crash is not lost; there are few of them on hot paths.
 */
import { type DestinationStream, destination, type Logger as PinoLogger, pino } from 'pino';
import type { Logger } from '../../base/logger.ts';

/** Lines below this level are dropped. */
export type LogLevel = 'debug' | 'info' | 'warn' | 'error' | 'silent';

const STANDARD_ERROR_FD = 2;

function wrap(target: PinoLogger): Logger {
  return {
    debug: (message, fields) => target.debug(fields ?? {}, message),
    info: (message, fields) => target.info(fields ?? {}, message),
    warn: (message, fields) => target.warn(fields ?? {}, message),
    error: (message, fields) => target.error(fields ?? {}, message),
    child: (fields) => wrap(target.child(fields)),
  };
}

/** A logger to `stream`, by default standard error. Errors in fields keep their stack. */
export function nodeLogger(
  level: LogLevel,
  stream: DestinationStream = destination({ dest: STANDARD_ERROR_FD, sync: true }),
): Logger {
  const options = {
    level,
    base: null,
    timestamp: pino.stdTimeFunctions.isoTime,
    formatters: { level: (label: string) => ({ level: label }) },
    serializers: { error: pino.stdSerializers.err, cause: pino.stdSerializers.err },
  };
  return wrap(pino(options, stream));
}
