/**
 * Shows a mirror's progress until told to stop: one line redrawn on a terminal, one line per look in a
 * pipe (only when something changed), one JSON object per look with `--json`.
 */
import type { AdminClient } from './admin-client.ts';
import { partitionStatuses, progressLine, progressOf, type StatusSample } from './mirror-status.ts';
import type { Output } from './output.ts';

/** How often the mirror is looked at. */
export const STATUS_INTERVAL_MS = 1_000;

function waitFor(ms: number, stop: Promise<unknown>): Promise<'stop' | 'time'> {
  let timer: NodeJS.Timeout;
  const time = new Promise<'time'>((resolve) => {
    timer = setTimeout(() => resolve('time'), ms);
  });
  return Promise.race([time, stop.then(() => 'stop' as const)]).finally(() => clearTimeout(timer));
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
  let lastLine = '';
  for (;;) {
    const [description] = await admin.describeMirrors([mirror]);
    const partitions = description === undefined ? [] : partitionStatuses(description);
    const sample = { atMs: performance.now(), partitions };
    const progress = progressOf(previous, sample);
    previous = sample;
    output.value({ event: 'status', mirror, ...progress, detail: partitions });
    const line = progressLine(mirror, progress);
    if (redraw) process.stdout.write(`\r\u001b[2K${line}`);
    else if (line !== lastLine) output.text(line);
    lastLine = line;
    for (const failure of progress.failures) {
      if (!redraw) output.text(`  ${failure}`);
    }
    if ((await waitFor(STATUS_INTERVAL_MS, stop)) === 'stop') break;
  }
  if (redraw) process.stdout.write('\n');
}
