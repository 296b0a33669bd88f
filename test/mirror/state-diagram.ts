/**
 * Renders the mirror partition state table (rule S1) as docs/ARCHITECTURE.md shows it: a mermaid
 * diagram of the moves and a table of the events that leave a state as it is.
 *
 * `node test/mirror/state-diagram.ts` puts it into the page; `state-diagram.test.ts` compares.
 */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import {
  type MirrorEventType,
  MirrorState,
  type MirrorStateName,
  stateName,
  step,
  TRANSITIONS,
} from '../../src/mirror/states.ts';
import { row } from './harness.ts';

/** The page that shows the table. */
export const PAGE = join(import.meta.dirname, '../../docs/ARCHITECTURE.md');
const BEGIN = '<!-- begin mirror states: rendered by test/mirror/state-diagram.ts -->';
const END = '<!-- end mirror states -->';

const STATES = Object.keys(TRANSITIONS) as MirrorStateName[];

/** Where `retry` leads a partition that failed in `from`; the step function is asked. */
function retryTarget(from: MirrorStateName): MirrorStateName {
  const failed = { previousState: MirrorState[from], retryAttempt: 1, cause: 'SOURCE_UNREACHABLE' };
  const input = { topicName: 't', partition: 0, leaderEpoch: 0, row: row('FAILED', failed) };
  const decided = step(input, { type: 'retry' }, 0);
  if ('illegal' in decided || decided.row === undefined) throw new Error(`no retry from ${from}`);
  return stateName(decided.row.state);
}

function eventsOf(state: MirrorStateName): MirrorEventType[] {
  return Object.keys(TRANSITIONS[state]) as MirrorEventType[];
}

function moves(state: MirrorStateName): string[] {
  return eventsOf(state).flatMap((event) => {
    const transition = TRANSITIONS[state][event];
    if (transition === undefined || transition.to === 'same') return [];
    const targets =
      transition.to === 'previous'
        ? new Set(STATES.filter((each) => TRANSITIONS[each].fail !== undefined).map(retryTarget))
        : [transition.to];
    return [...targets].map((to) => `    ${state} --> ${to}: ${event} (${transition.rule})`);
  });
}

function staying(state: MirrorStateName, isNoMove: boolean): string {
  const names = eventsOf(state).flatMap((event) => {
    const transition = TRANSITIONS[state][event];
    const fits = transition?.to === 'same' && (transition.isNoMove === true) === isNoMove;
    return fits ? [`${event} (${transition.rule})`] : [];
  });
  return names.join(', ') || '–';
}

/** The diagram and the table, without the markers around them. */
export function renderStates(): string {
  return [
    '```mermaid',
    'stateDiagram-v2',
    '    [*] --> UNKNOWN',
    ...STATES.flatMap(moves),
    '```',
    '',
    '| state (code) | events that rewrite the row in place | events that are true already |',
    '|---|---|---|',
    ...STATES.map(
      (state) =>
        `| ${state} (${MirrorState[state]}) | ${staying(state, false)} | ${staying(state, true)} |`,
    ),
  ].join('\n');
}

/** What the page shows between the markers. */
export function shownStates(page: string): string {
  const from = page.indexOf(BEGIN);
  const to = page.indexOf(END);
  if (from < 0 || to < from) throw new Error(`${PAGE} has no mirror state block`);
  return page.slice(from + BEGIN.length, to).trim();
}

if (import.meta.main) {
  const page = readFileSync(PAGE, 'utf8');
  writeFileSync(
    PAGE,
    page.replace(shownStates(page), () => renderStates()),
  );
}
