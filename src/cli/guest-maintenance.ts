/**
 * `twinlog guest maintenance on|off`: before and after a rolling restart of the cluster.
 *
 * Called by `main.ts`. Sets what the guests go by, then waits until every mirror partition is as it
 * shall be, and shows how far it is. It may be ended and repeated; the guests go on by themselves.
 */
import type { ClusterLook } from '../guest/cluster-look.ts';
import {
  type MaintenanceProgress,
  maintenanceGuests,
  maintenanceProgress,
  setMaintenance,
  underReplicated,
} from '../guest/maintenance.ts';
import { type GuestClusterOptions, withCluster } from './guest-cluster.ts';
import { CommandError, type Output, stdoutOutput } from './output.ts';

/** Options of `guest maintenance`. */
export interface GuestMaintenanceOptions extends GuestClusterOptions {
  readonly nodeId: readonly number[];
  /** Seconds. */
  readonly timeout: number;
  readonly wait: boolean;
}

/** Time between two lines of progress, in ms. */
const PROGRESS_MS = 2_000;
const LOOK_MS = 200;
/** Waits that a message names. */
const MAX_SHOWN = 5;

/** Runs the command. */
export function guestMaintenance(
  wish: 'on' | 'off',
  options: GuestMaintenanceOptions,
): Promise<void> {
  const output = stdoutOutput(options.json);
  const on = wish === 'on';
  return withCluster(options, async (cluster) => {
    await cluster.readRows();
    const chosen = maintenanceGuests(cluster.image, options.nodeId);
    if ('problem' in chosen) throw new CommandError(chosen.problem);
    const { ids } = chosen;
    const problem = await setMaintenance(cluster.controller, cluster.image, ids, on);
    if (problem !== undefined) throw new CommandError(`${problem}. Run this again.`);
    output.text(
      `Maintenance is ${wish} for ${ids.length === 1 ? 'guest' : 'guests'} ${ids.join(', ')}.`,
    );
    if (options.wait) await untilDone(cluster, ids, on, options, output);
    output.value({ event: 'maintenance', on, guests: ids });
  });
}

async function untilDone(
  cluster: ClusterLook,
  ids: readonly number[],
  on: boolean,
  { timeout }: GuestMaintenanceOptions,
  output: Output,
): Promise<void> {
  const look = (): MaintenanceProgress => maintenanceProgress(cluster.image, ids, on);
  let shownMs = -PROGRESS_MS;
  for (let waitedMs = 0; ; waitedMs += LOOK_MS) {
    const progress = look();
    if (progress.waits.length === 0) break;
    if (waitedMs >= timeout * 1_000) throw new CommandError(late(progress, on, timeout));
    if (waitedMs - shownMs >= PROGRESS_MS) {
      shownMs = waitedMs;
      show(output, progress);
    }
    await cluster.pause(LOOK_MS);
  }
  tellDone(cluster, look(), on, output);
}

function show(output: Output, { partitions, waits }: MaintenanceProgress): void {
  const [first] = waits;
  output.value({
    event: 'waiting',
    partitions,
    left: waits.length,
    waits: waits.slice(0, MAX_SHOWN),
  });
  output.text(
    `  ${partitions - waits.length} of ${partitions} partitions; ` +
      `${first?.partition}: ${first?.reason}`,
  );
}

function late({ waits }: MaintenanceProgress, on: boolean, timeout: number): string {
  const shown = waits.slice(0, MAX_SHOWN).map(({ partition, reason }) => `${partition}: ${reason}`);
  const more = waits.length > MAX_SHOWN ? ` and ${waits.length - MAX_SHOWN} more` : '';
  const next = on ? 'Do not restart brokers yet' : 'The guests go on by themselves';
  return (
    `Not done after ${timeout} seconds: ${shown.join('; ')}${more}. ${next}; run this again to ` +
    'wait on.'
  );
}

function tellDone(
  cluster: ClusterLook,
  { partitions }: MaintenanceProgress,
  on: boolean,
  output: Output,
): void {
  if (!on) {
    output.text(`All ${partitions} mirror partitions have guests in sync only, and no lock.`);
    return;
  }
  const others = underReplicated(cluster.image).length;
  output.text(
    `All ${partitions} mirror partitions are locked, with every live replica in sync; ` +
      `${others} partitions of the cluster are under-replicated.`,
  );
  output.text('Restart the brokers one after the other now, each when none is under-replicated.');
  output.text('Then: twinlog guest maintenance off');
}
