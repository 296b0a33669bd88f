/**
 * `twinlog guest rescue`: native topics out of mirror topics whose guests are all gone for good.
 *
 * Called by `main.ts`. Without `--yes` it shows what would be done and what may be missing, and
 * changes nothing. It may be repeated: each run goes on from where the cluster stands.
 */
import type { ClusterLook } from '../guest/cluster-look.ts';
import { guests } from '../guest/guest-brokers.ts';
import { Rescue, type Rescued, RescueFailed } from '../guest/rescue/rescue.ts';
import { ApacheRescueBrokers } from '../guest/rescue/rescue-brokers.ts';
import { liveGuests, missing, type RescuePartition, stateOf } from '../guest/rescue/rescue-plan.ts';
import { processRuntime } from './broker-process.ts';
import { commandSecurity } from './client-config.ts';
import { type GuestClusterOptions, withCluster } from './guest-cluster.ts';
import { CommandError, type Output, stdoutOutput, table } from './output.ts';

/** Options of `guest rescue`. */
export interface GuestRescueOptions extends GuestClusterOptions {
  /** Undefined: all. */
  readonly mirror?: readonly string[];
  readonly yes: boolean;
}

/** Runs the command. */
export async function guestRescue(options: GuestRescueOptions): Promise<void> {
  const output = stdoutOutput(options.json);
  const owner = await withCluster(options, async (cluster) => await lostGuest(cluster, options));
  if (owner === undefined) {
    output.value({ event: 'nothing to rescue' });
    output.text('Nothing to rescue: the cluster has no mirror state.');
    return;
  }
  const wish = { inPlaceOf: owner };
  await withCluster(options, (cluster) => rescue(cluster, owner, options, output), wish);
}

/** The guest whose place is taken; undefined: there is nothing to rescue. */
async function lostGuest(
  cluster: ClusterLook,
  { mirror }: GuestRescueOptions,
): Promise<number | undefined> {
  const alive = liveGuests(cluster.image);
  if (alive.length > 0) {
    throw new CommandError(
      `Guest ${alive.join(', ')} runs: fail over with \`twinlog mirrors remove\`. If it was ` +
        'killed just now, wait until the controller has noticed (broker.session.timeout.ms, 9 ' +
        'seconds by default). If it runs but is of no use, stop it first.',
    );
  }
  if (!(await cluster.readRows())) return undefined;
  const known = cluster.store.mirrors();
  const strangers = (mirror ?? []).filter((name) => !known.includes(name));
  if (strangers.length > 0) {
    const there = known.length === 0 ? 'There is none.' : `There are ${known.join(', ')}.`;
    throw new CommandError(`No mirror of this cluster: ${strangers.join(', ')}. ${there}`);
  }
  const owners = known.flatMap((name) => cluster.store.jobs(name)?.guestId ?? []);
  const registered = guests(cluster.image).map(({ id }) => id);
  return Math.min(...registered, ...owners, Number.MAX_SAFE_INTEGER);
}

async function rescue(
  cluster: ClusterLook,
  inPlaceOf: number,
  options: GuestRescueOptions,
  output: Output,
): Promise<void> {
  await cluster.readRows();
  const runtime = processRuntime('error');
  const security = commandSecurity(options.commandConfig);
  const brokers = new ApacheRescueBrokers(runtime, () => cluster.image, security);
  const work = new Rescue(runtime, {
    look: cluster,
    brokers,
    inPlaceOf,
    mirrors: options.mirror,
    onStep: (what) => {
      output.value({ event: 'step', what });
      output.text(`${what} …`);
    },
  });
  try {
    const plan = await work.plan();
    showPlan(output, plan);
    if (plan.length === 0) return;
    if (options.yes) {
      showRescued(output, await work.run(), plan);
      return;
    }
    output.text('Nothing has been changed. To do it: the same command with --yes.');
    output.text('Only do so if no guest and no guest data will come back: guests have more.');
  } catch (error) {
    if (!(error instanceof RescueFailed)) throw error;
    throw new CommandError(`${error.message}. Run the rescue again: it goes on from here.`);
  } finally {
    brokers.close();
  }
}

function nameOf({ topic, partition }: RescuePartition): string {
  return `${topic.name}-${partition.partition}`;
}

function showPlan(output: Output, plan: readonly RescuePartition[]): void {
  if (plan.length === 0) {
    output.value({ event: 'nothing to rescue' });
    output.text('Nothing to rescue: every mirror topic is native already.');
    return;
  }
  for (const each of plan) {
    const { mirror, topic, partition, logs, silent, leader } = each;
    output.value({
      event: 'plan',
      mirror,
      topic: topic.name,
      partition: partition.partition,
      state: stateOf(each),
      replicas: logs,
      silent,
      elect: leader?.brokerId ?? null,
      end: leader?.end ?? null,
      missing: missing(each),
    });
  }
  const rows = plan.map((each) => [
    nameOf(each),
    stateOf(each),
    each.logs.map(({ brokerId, end, lastEpoch }) => `${brokerId}:${end}/${lastEpoch}`).join(' '),
    each.leader === undefined ? '-' : String(each.leader.brokerId),
    each.leader?.end ?? '-',
  ]);
  const headings = ['PARTITION', 'STATE', 'BROKER:END/EPOCH', 'LEADER', 'ENDS-AT'];
  for (const line of table(headings, rows)) output.text(line);
  output.text('What may be missing:');
  for (const each of plan) {
    for (const sentence of missing(each)) output.text(`  ${nameOf(each)}: ${sentence}`);
  }
}

function showRescued(
  output: Output,
  rescued: readonly Rescued[],
  plan: readonly RescuePartition[],
): void {
  for (const each of rescued) {
    const { topic, partition, leader, lastMirroredOffset, closed, end, lowered } = each;
    output.value({ event: 'rescued', ...each });
    const from = lastMirroredOffset < 0 ? 'never mirrored' : `mirrored up to ${lastMirroredOffset}`;
    output.text(`  ${topic}-${partition}: STOPPED, writable, led by ${leader}, ${from}`);
    for (const { producerId, firstOffset } of closed) {
      output.text(`    transaction of producer ${producerId} from ${firstOffset} on: aborted`);
    }
    for (const { groupId, from: held, left } of lowered.groups) {
      const text = left === undefined ? `lowered to ${end}` : `above the end, ${end}: ${left}`;
      output.text(`    group ${groupId} had committed ${held}: ${text}`);
    }
    if (lowered.problem !== undefined) output.text(`    not lowered: ${lowered.problem}`);
  }
  const left = plan.filter(({ leader }) => leader === undefined);
  if (left.length === 0) {
    output.text('Next: twinlog guest leave --node-id N, for each lost guest.');
    return;
  }
  throw new CommandError(
    `${left.length} partitions are not rescued, as none of their Apache replicas answers: ` +
      `${left.map(nameOf).join(', ')}. Start the brokers that have them, and run this again.`,
  );
}
