/**
 * Shows a mirror's progress until told to stop: one line redrawn on a terminal, one line per look
 * in a pipe (only when something changed), one JSON object per look with `--json`. Failures get
 * lines of their own, once.
 */
import type { AdminClient } from './admin-client.ts';
import { partitionStatuses, progressLine, progressOf, type StatusSample } from './mirror-status.ts';
import type { Output } from './output.ts';

/** How often the mirror is looked at. */
export const STATUS_INTERVAL_MS = 1_000;
const CLEAR_LINE = '\r\u001b[2K';

/** A pause that `stop` cuts short; one reaction to `stop` serves all pauses. */
function pauses(stop: Promise<unknown>): (ms: number) => Promise<'stop' | 'time'> {
  let stopped = false;
  let wake = (): void => {};
  void stop.then(() => {
    stopped = true;
    wake();
  });
  return async (ms) => {
    if (stopped) return 'stop';
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    return stopped ? 'stop' : 'time';
  };
}

/** Runs until `stop` resolves. */
export async function showLiveStatus(
  admin: AdminClient,
  mirror: string,
  output: Output,
  stop: Promise<unknown>,
): Promise<void> {
  const redraw = !output.json && process.stdout.isTTY === true;
  let previous: StatusSample | undefined;
  const pause = pauses(stop);
  let lastLine = '';
  let lastFailures = '';
  for (;;) {
    const [description] = await admin.describeMirrors([mirror]);
    const partitions = description === undefined ? [] : partitionStatuses(description);
    const sample = { atMs: performance.now(), partitions };
    const progress = progressOf(previous, sample);
    previous = sample;
    output.value({ event: 'status', mirror, ...progress, detail: partitions });
    const line = progressLine(mirror, progress);
    const failures = progress.failures.map((failure) => `  ${failure}\n`).join('');
    if (failures !== lastFailures) {
      if (redraw) process.stdout.write(CLEAR_LINE);
      if (!output.json) process.stdout.write(failures);
    }
    if (redraw) process.stdout.write(CLEAR_LINE + line);
    else if (line !== lastLine) output.text(line);
    lastLine = line;
    lastFailures = failures;
    if ((await pause(STATUS_INTERVAL_MS)) === 'stop') break;
  }
  if (redraw) process.stdout.write('\n');
}
