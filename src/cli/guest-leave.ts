/**
 * `twinlog guest leave`: makes the cluster forget a guest that has stopped for good.
 *
 * Called by `main.ts`. It may be repeated; a guest that nobody knows is a success.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { listed } from '../guest/check/check.ts';
import type { ClusterLook } from '../guest/cluster-look.ts';
import { leave, planLeave } from '../guest/leave.ts';
import { type GuestClusterOptions, withCluster } from './guest-cluster.ts';
import { CommandError, stdoutOutput } from './output.ts';

/** Options of `guest leave`. */
export interface GuestLeaveOptions extends GuestClusterOptions {
  readonly nodeId: number;
  readonly unmarked: boolean;
}

/** A guest fences itself for a moment to get a new leader epoch: not longer than this, in ms. */
const FENCED_FOR_MS = 2_000;
/** How long the metadata may take to show that it is gone, in ms. */
const SHOWN_BOUND_MS = 10_000;

/** Runs the command. */
export function guestLeave(options: GuestLeaveOptions): Promise<void> {
  const output = stdoutOutput(options.json);
  const { nodeId } = options;
  return withCluster(options, async (cluster) => {
    await cluster.readRows();
    if (plan(cluster, options).kind === 'gone') {
      output.value({ event: 'left', nodeId, changed: false });
      output.text(`The cluster knows no guest ${nodeId}: nothing to do.`);
      return;
    }
    const first = plan(cluster, options);
    await sleep(FENCED_FOR_MS);
    const second = plan(cluster, options);
    if (second.kind !== 'leave') return;
    if (first.kind !== 'leave' || first.epoch !== second.epoch) {
      throw new CommandError(`Guest ${nodeId} has registered again just now: stop it first.`);
    }
    const problem = await leave(cluster.controller, nodeId, second);
    if (problem !== undefined) throw new CommandError(`${problem}. Run this again.`);
    await untilGone(cluster, nodeId);
    output.value({ event: 'left', nodeId, changed: true, configs: second.configs });
    output.text(`Guest ${nodeId} has left: the cluster has neither its id nor its settings.`);
    output.text('kafka-metadata-quorum.sh may list it as an observer for a few minutes more.');
  });
}

function plan(cluster: ClusterLook, { nodeId, unmarked }: GuestLeaveOptions) {
  const { image } = cluster;
  const isMirrored = (topic: string): boolean => image.membership(topic) !== undefined;
  const made = planLeave(image, nodeId, isMirrored, unmarked);
  if (made.kind !== 'refused') return made;
  const partitions = made.partitions.length === 0 ? '' : ` Partitions: ${listed(made.partitions)}.`;
  throw new CommandError(`${made.why}${partitions}`);
}

async function untilGone(cluster: ClusterLook, nodeId: number): Promise<void> {
  for (let waitedMs = 0; cluster.image.brokers.has(nodeId); waitedMs += 200) {
    if (waitedMs >= SHOWN_BOUND_MS) {
      throw new CommandError(`Guest ${nodeId} is unregistered, but has come back: stop it first.`);
    }
    await cluster.pause(200);
  }
}
