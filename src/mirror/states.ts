/**
 * The mirror partition state machine (rules S1–S7): one table, one pure step.
 *
 * The table is keyed by current state, then event; what it does not hold is illegal. `step` turns a
 * durable row and an event into the next row and the effects it calls for; it changes nothing. The
 * driver (`partition-driver.ts`) writes the row, and only when it is durable performs the effects;
 * the coordinator shard checks every written move against the same table.
 *
 * Invariants: UNKNOWN is never in a row; every row's state epoch is one above its predecessor's;
 * PreviousState of FAILED is the state a retry returns to.
 */
import { ZERO_UUID } from '../base/uuid.ts';
import { isRetryable, type MirrorCause } from './causes.ts';
import {
  type ClosedTransaction,
  MAX_SOURCE_EPOCHS,
  type MirrorStateRow,
  type SourceEpoch,
} from './state-row.ts';

/** Codes on the wire and in rows. PAUSED is an addition to the proposal. */
export const MirrorState = {
  PREPARING: 0,
  MIRRORING: 1,
  STOPPING: 2,
  STOPPED: 4,
  FAILED: 8,
  UNKNOWN: 16,
  PAUSED: 32,
} as const;
/** The text of a state. */
export type MirrorStateName = keyof typeof MirrorState;

const NAMES = new Map<number, MirrorStateName>(
  Object.entries(MirrorState).map(([name, code]) => [code, name as MirrorStateName]),
);

/** The text of a code; UNKNOWN for one that nobody defined. */
export function stateName(code: number): MirrorStateName {
  return NAMES.get(code) ?? 'UNKNOWN';
}

/** What can happen to a mirror partition. */
export type MirrorEvent =
  /** Membership newer than the row's was noticed (T1, S7). */
  | { readonly type: 'prepare'; readonly membershipOffset: number }
  /** Truncated and confirmed (T6); from which source. */
  | { readonly type: 'prepared' }
  | { readonly type: 'pause' }
  | { readonly type: 'resume' }
  /** Membership ends (D1), or the source topic is gone (Y5): `reason` goes to the history. */
  | {
      readonly type: 'stop';
      readonly membershipOffset: number;
      readonly cause?: MirrorCause;
      readonly reason?: string;
    }
  /** Cut and confirmed. Undefined: the episode never mirrored, the LMO stays (D2). */
  | { readonly type: 'stopped'; readonly lastMirroredOffset: number | undefined }
  /** Which transactions end with a marker instead of a cut, and where: before they do (G24a). */
  | { readonly type: 'closing'; readonly transactions: readonly ClosedTransaction[] }
  /**
   * Cut and confirmed as for `stopped`, and nothing cuts again; the partition becomes writable when
   * it has been handed over (G24).
   */
  | { readonly type: 'settled'; readonly lastMirroredOffset: number | undefined }
  | {
      readonly type: 'fail';
      readonly cause: MirrorCause;
      readonly message: string;
      /** Something went well since the last failure: the backoff starts anew. */
      readonly progressed: boolean;
    }
  | { readonly type: 'retry' }
  /** A new leadership takes the row over (S3). */
  | { readonly type: 'claim'; readonly membershipOffset: number }
  /** Facts about the source, to be durable before they are acted on (F10, O4). */
  | {
      readonly type: 'learn';
      readonly sourceClusterId?: string;
      readonly sourceTopicId?: MirrorStateRow['sourceTopicId'];
      readonly sourceEpochs?: readonly SourceEpoch[];
      readonly closedAtSource?: readonly ClosedTransaction[];
      /** About to be made. */
      readonly cut?: { readonly offset: number; readonly leaderEpoch: number } | undefined;
    }
  /** A cut below what this row remembers (T3). */
  | { readonly type: 'lower'; readonly lastMirroredOffset: number };

/** The kind of an event. */
export type MirrorEventType = MirrorEvent['type'];

/** What the driver does once the row is durable. */
export type MirrorEffect =
  | { readonly type: 'prepare' }
  | { readonly type: 'fetch' }
  /** The fetcher lets go of the partition; afterwards no append can come. */
  | { readonly type: 'haltFetch' }
  | { readonly type: 'cut' }
  | { readonly type: 'scheduleRetry'; readonly attempt: number }
  | { readonly type: 'open' };

interface Transition {
  /** `same`: the state stays; `previous`: the one that FAILED came from. */
  readonly to: MirrorStateName | 'same' | 'previous';
  readonly rule: string;
  /** The event is already true: success without a record (rule D7). */
  readonly isNoMove?: true;
}

type Row = Readonly<Partial<Record<MirrorEventType, Transition>>>;

const FAIL: Transition = { to: 'FAILED', rule: 'S5' };
const CLAIM: Transition = { to: 'same', rule: 'S3' };
const STOP: Transition = { to: 'STOPPING', rule: 'D1' };
const LOWER: Transition = { to: 'same', rule: 'T3' };
const LEARN: Transition = { to: 'same', rule: 'F10' };

/** Every legal move (rule S1). */
export const TRANSITIONS: Readonly<Record<MirrorStateName, Row>> = {
  UNKNOWN: {
    prepare: { to: 'PREPARING', rule: 'T1' },
    stop: { to: 'STOPPING', rule: 'S7' },
    fail: FAIL,
  },
  PREPARING: {
    prepared: { to: 'MIRRORING', rule: 'T6' },
    stop: { to: 'STOPPING', rule: 'D2' },
    fail: FAIL,
    claim: CLAIM,
    learn: { to: 'same', rule: 'O4' },
    lower: LOWER,
  },
  MIRRORING: {
    pause: { to: 'PAUSED', rule: 'A7' },
    stop: STOP,
    fail: FAIL,
    claim: CLAIM,
    learn: LEARN,
    lower: LOWER,
  },
  PAUSED: {
    resume: { to: 'MIRRORING', rule: 'A7' },
    stop: STOP,
    fail: FAIL,
    claim: CLAIM,
    lower: LOWER,
  },
  STOPPING: {
    stopped: { to: 'STOPPED', rule: 'D1' },
    closing: { to: 'same', rule: 'G24a' },
    settled: { to: 'same', rule: 'G24' },
    stop: { to: 'same', rule: 'D7', isNoMove: true },
    fail: FAIL,
    claim: CLAIM,
    lower: LOWER,
  },
  STOPPED: {
    prepare: { to: 'PREPARING', rule: 'S7' },
    stop: { to: 'same', rule: 'D7', isNoMove: true },
    claim: CLAIM,
    lower: LOWER,
  },
  FAILED: {
    retry: { to: 'previous', rule: 'S5' },
    stop: { to: 'STOPPING', rule: 'D3' },
    claim: CLAIM,
    lower: LOWER,
  },
};

/** What `step` decides about. */
export interface StepInput {
  readonly topicName: string;
  readonly partition: number;
  /** Of the leadership that acts. */
  readonly leaderEpoch: number;
  /** The durable row; undefined: a definite "no row". */
  readonly row: MirrorStateRow | undefined;
}

/** What `step` decided. */
export type StepResult =
  | { readonly row: MirrorStateRow | undefined; readonly effects: readonly MirrorEffect[] }
  | { readonly illegal: string };

/** Where FAILED returns to. UNKNOWN is never stored: its only way on is PREPARING. */
function returnState(row: MirrorStateRow): MirrorStateName {
  const previous = stateName(row.previousState);
  return previous === 'UNKNOWN' ? 'PREPARING' : previous;
}

/** Whether some event may lead from one state to the other (rule S1). */
export function isLegalMove(from: MirrorStateRow | undefined, to: number): boolean {
  const current = from === undefined ? 'UNKNOWN' : stateName(from.state);
  const target = stateName(to);
  return Object.values(TRANSITIONS[current]).some((transition) => {
    if (transition.to === 'same') return current === target;
    if (transition.to === 'previous') return from !== undefined && returnState(from) === target;
    return transition.to === target;
  });
}

function blankRow(input: StepInput): MirrorStateRow {
  return {
    topicName: input.topicName,
    partition: input.partition,
    state: MirrorState.UNKNOWN,
    lastMirroredOffset: -1,
    stateEpoch: 0,
    leaderEpoch: input.leaderEpoch,
    membershipOffset: -1,
    sourceClusterId: '',
    sourceTopicId: ZERO_UUID,
    sourceEpochs: [],
    previousState: MirrorState.UNKNOWN,
    retryAttempt: 0,
    cause: '',
    message: '',
    sinceMs: -1,
    reachedMirroring: false,
    settled: false,
    closedTransactions: [],
    closedAtSource: [],
    cutOffset: -1,
    cutLeaderEpoch: -1,
  };
}

/** The entry action of a state, which re-entry repeats (rule S3). */
export function entryEffects(row: MirrorStateRow): MirrorEffect[] {
  switch (stateName(row.state)) {
    case 'PREPARING':
      return [{ type: 'haltFetch' }, { type: 'prepare' }];
    case 'MIRRORING':
      return [{ type: 'fetch' }];
    case 'PAUSED':
      return [{ type: 'haltFetch' }];
    case 'STOPPING':
      return row.settled ? [{ type: 'haltFetch' }] : [{ type: 'haltFetch' }, { type: 'cut' }];
    case 'STOPPED':
      return [{ type: 'haltFetch' }, { type: 'open' }];
    case 'FAILED': {
      const halt: MirrorEffect = { type: 'haltFetch' };
      if (!isRetryable(row.cause)) return [halt];
      return [halt, { type: 'scheduleRetry', attempt: row.retryAttempt }];
    }
    case 'UNKNOWN':
      return [];
  }
}

/** The fields an event sets besides the state; the table has been consulted. */
function changesOf(row: MirrorStateRow, event: MirrorEvent): Partial<MirrorStateRow> {
  const calm = { cause: '', message: '' };
  switch (event.type) {
    case 'prepare':
      return {
        ...calm,
        membershipOffset: event.membershipOffset,
        retryAttempt: 0,
        reachedMirroring: false,
        settled: false,
        sourceEpochs: row.sourceEpochs,
      };
    case 'prepared':
      // Until now a stop would have to end again what the cut has opened again (G31).
      return { ...calm, reachedMirroring: true, closedTransactions: [] };
    case 'stop':
      return {
        cause: event.cause ?? '',
        message: event.reason ?? '',
        settled: false,
        membershipOffset: Math.max(row.membershipOffset, event.membershipOffset),
      };
    case 'stopped':
      // The cause of a stop that nobody asked for (Y5) stays readable in STOPPED.
      return event.lastMirroredOffset === undefined
        ? { retryAttempt: 0 }
        : { retryAttempt: 0, lastMirroredOffset: event.lastMirroredOffset };
    case 'closing':
      return { closedTransactions: [...event.transactions] };
    case 'settled':
      return {
        retryAttempt: 0,
        lastMirroredOffset: event.lastMirroredOffset ?? row.lastMirroredOffset,
        settled: true,
      };
    case 'fail':
      return {
        cause: event.cause,
        message: event.message.slice(0, MAX_MESSAGE_LENGTH),
        retryAttempt: event.progressed ? 1 : row.retryAttempt + 1,
      };
    case 'retry':
    case 'pause':
    case 'resume':
      return calm;
    case 'claim':
      return { membershipOffset: Math.max(row.membershipOffset, event.membershipOffset) };
    case 'learn':
      return {
        sourceClusterId: event.sourceClusterId ?? row.sourceClusterId,
        sourceTopicId: event.sourceTopicId ?? row.sourceTopicId,
        sourceEpochs: [...(event.sourceEpochs ?? row.sourceEpochs)].slice(-MAX_SOURCE_EPOCHS),
        closedAtSource: [...(event.closedAtSource ?? row.closedAtSource)],
        cutOffset: event.cut?.offset ?? row.cutOffset,
        cutLeaderEpoch: event.cut?.leaderEpoch ?? row.cutLeaderEpoch,
      };
    case 'lower':
      return {
        lastMirroredOffset: Math.min(row.lastMirroredOffset, event.lastMirroredOffset),
      };
  }
}

/** Where the log of a settled stop ended: behind the markers, if there are any (G24a). */
export function settledEnd({ lastMirroredOffset, closedTransactions }: MirrorStateRow): number {
  const marker = closedTransactions.at(-1)?.markerOffset ?? -1;
  return Math.max(lastMirroredOffset, marker + 1);
}

/** Longest message a row keeps. */
export const MAX_MESSAGE_LENGTH = 500;

/** Why the table's move does not apply to this row although the state would allow it. */
function guard(row: MirrorStateRow | undefined, event: MirrorEvent): string | undefined {
  const isPast = event.type === 'fail' || event.type === 'closing';
  if (isPast && row?.settled && stateName(row.state) === 'STOPPING') {
    return 'a stop that is settled only goes forward (G24)';
  }
  if (event.type !== 'prepare' || row === undefined) return undefined;
  // S7: a topic stopped because its source was deleted stays stopped across reconciles.
  if (event.membershipOffset > row.membershipOffset) return undefined;
  return `membership ${event.membershipOffset} is not newer than the row's (S7)`;
}

/** Decides one event (see the file header); `nowMs` is wall time. */
export function step(input: StepInput, event: MirrorEvent, nowMs: number): StepResult {
  const before = input.row ?? blankRow(input);
  const current = stateName(before.state);
  const transition = TRANSITIONS[current][event.type];
  if (transition === undefined) return { illegal: `${event.type} is not legal in ${current} (S1)` };
  const refused = guard(input.row, event);
  if (refused !== undefined) return { illegal: refused };
  if (transition.isNoMove) return { row: undefined, effects: [] };
  const target =
    transition.to === 'same'
      ? current
      : transition.to === 'previous'
        ? returnState(before)
        : transition.to;
  const moved = target !== current;
  const row: MirrorStateRow = {
    ...before,
    ...changesOf(before, event),
    topicName: input.topicName,
    state: MirrorState[target],
    previousState: moved ? before.state : before.previousState,
    stateEpoch: before.stateEpoch + 1,
    leaderEpoch: input.leaderEpoch,
    sinceMs: moved ? nowMs : before.sinceMs,
  };
  const reenter = moved || event.type === 'claim';
  return { row, effects: reenter ? entryEffects(row) : [] };
}
