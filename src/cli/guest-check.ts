/**
 * `twinlog guest check`: shows what a cluster needs before a guest joins it.
 *
 * Called by `main.ts`. Each check is a line as soon as it is made, what to do about it below; the
 * command fails when there is a problem, not for warnings.
 */
import type { Check, CheckStatus } from '../guest/check/check.ts';
import { checkCluster } from '../guest/check/check-cluster.ts';
import { ANONYMOUS } from '../guest/check/check-rights.ts';
import { certificateSubject } from '../io/node/node-tls.ts';
import type { ConnectionSecurity } from '../protocol/connection-security.ts';
import { processRuntime } from './broker-process.ts';
import { commandSecurity } from './client-config.ts';
import { controllers } from './guest-cluster.ts';
import { CommandError, type Output, stdoutOutput } from './output.ts';

/** Options of `guest check`. */
export interface GuestCheckOptions {
  readonly bootstrapController: string;
  /** File with the settings of a client of the cluster. */
  readonly commandConfig?: string;
  readonly json: boolean;
  readonly nodeId?: number;
  readonly listener: string;
  readonly principal?: string;
}

/** Columns of the first two words of a line. */
const STATUS_WIDTH = 9;
const NAME_WIDTH = 42;

function show(output: Output, check: Check): void {
  const { name, status, found, fix, data } = check;
  output.value({ check: name, status, found, ...(fix === undefined ? {} : { fix }), ...data });
  output.text(`${status.padEnd(STATUS_WIDTH)}${name.padEnd(NAME_WIDTH)}  ${found}`);
  if (fix !== undefined) output.text(`${' '.repeat(STATUS_WIDTH)}→ ${fix}`);
}

function counted(count: number, noun: string): string {
  return `${count} ${noun}${count === 1 ? '' : 's'}`;
}

/** As the cluster's ACLs name whoever connects so, unless the cluster maps names. */
function principalOf(security: ConnectionSecurity | undefined): string {
  if (security?.sasl !== undefined) return `User:${security.sasl.username}`;
  const identity = security?.tls?.identity;
  if (identity === undefined) return ANONYMOUS;
  try {
    return `User:${certificateSubject(identity.certificateChain)}`;
  } catch (error) {
    const message = (error as Error).message;
    throw new CommandError(`The certificate of ssl.keystore cannot be read: ${message}`, 2);
  }
}

/** Runs the command. */
export async function guestCheck(options: GuestCheckOptions): Promise<void> {
  const output = stdoutOutput(options.json);
  const security = commandSecurity(options.commandConfig);
  const counts: Record<CheckStatus, number> = { ok: 0, warning: 0, problem: 0 };
  await checkCluster(processRuntime('silent'), {
    bootstrapControllers: controllers(options.bootstrapController),
    security,
    nodeId: options.nodeId,
    listener: options.listener,
    principal: options.principal ?? principalOf(security),
    onCheck: (check) => {
      counts[check.status]++;
      show(output, check);
    },
  });
  output.value({ event: 'checked', ...counts });
  const { ok, warning, problem } = counts;
  const summary = `${counted(problem, 'problem')}, ${counted(warning, 'warning')}, ${ok} ok`;
  if (counts.problem > 0) {
    throw new CommandError(`A guest cannot work in this cluster yet: ${summary}. See → above.`);
  }
  output.text(`A guest can join this cluster: ${summary}.`);
}
