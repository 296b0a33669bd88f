/**
 * Why a mirror partition failed or is held up (rule S5): the causes, and what resolves each.
 *
 * Causes are text in rows and in DescribeMirrors. Retryable ones are tried again with backoff for
 * ever; the others need a person, and DescribeMirrors adds to their message what resolves them.
 */
import { Fault } from '../base/assert.ts';
import type { Logger } from '../base/logger.ts';
import { DiskError } from '../io/runtime.ts';

interface CauseKind {
  readonly retryable: boolean;
  /** What an operator can do; for a retryable cause, what to look at. */
  readonly advice: (place: CausePlace) => string;
}

/** Where a cause occurred, so that advice can name commands in full. */
export interface CausePlace {
  readonly mirror: string;
  readonly topic: string;
}

const removeCommand = ({ mirror, topic }: CausePlace): string =>
  `\`twinlog mirrors remove ${mirror} ${topic}\``;
const addCommand = ({ mirror, topic }: CausePlace): string =>
  `\`twinlog mirrors add ${mirror} ${topic}\``;
const deleteHere = ({ topic }: CausePlace): string =>
  `delete it here (\`kafka-topics.sh --delete --topic ${topic}\`)`;

/** Something is repaired elsewhere, then the partition starts anew without losing its data. */
const repair =
  (what: string) =>
  (place: CausePlace): string =>
    `${what}, then ${removeCommand(place)} and ${addCommand(place)}`;

/** The local copy cannot become the source's without losing what it has: a person decides. */
const keepOrReplace = (place: CausePlace): string =>
  `to keep what is here and write to it: ${removeCommand(place)}; to take the source's copy: ` +
  `${removeCommand(place)}, ${deleteHere(place)}, ${addCommand(place)}`;

const look = (at: string) => (): string => at;

const CAUSES = {
  SOURCE_UNREACHABLE: { retryable: true, advice: look('check bootstrap.servers and the network') },
  SOURCE_AUTHENTICATION_FAILED: { retryable: true, advice: look("check the mirror's credentials") },
  SOURCE_AUTHORIZATION_FAILED: {
    retryable: true,
    advice: look('grant READ and DESCRIBE at the source'),
  },
  SOURCE_TIMED_OUT: {
    retryable: true,
    advice: look('check the load of the source and the network'),
  },
  SOURCE_LEADER_UNKNOWN: { retryable: true, advice: look('check the partition at the source') },
  SOURCE_TOPIC_MISSING: {
    retryable: true,
    advice: (place) =>
      `if it was deleted there on purpose: ${removeCommand(place)}; the data stays`,
  },
  SOURCE_ERROR: { retryable: true, advice: look('see the message') },
  STORAGE_BUSY: { retryable: true, advice: look("check this broker's disks") },
  DESTINATION_BUSY: { retryable: true, advice: look('see the message') },
  INTERNAL_ERROR: {
    retryable: true,
    advice: look("a defect of twinlog: report it with this broker's log"),
  },
  SOURCE_CLUSTER_CHANGED: {
    retryable: false,
    advice: (place) =>
      `${repair('let bootstrap.servers lead to the recorded cluster again')(place)}; ` +
      'for another cluster: `twinlog mirrors create`',
  },
  LOOP: {
    retryable: false,
    advice: (place) =>
      `remove the topic from the mirror in the other direction, or here: ${removeCommand(place)}`,
  },
  SOURCE_DIVERGED: { retryable: false, advice: keepOrReplace },
  WOULD_DISCARD_ALL: { retryable: false, advice: keepOrReplace },
  CORRUPT_SOURCE_BATCH: { retryable: false, advice: repair('repair the replica at the source') },
  TIERED_STORAGE: {
    retryable: false,
    advice: repair('raise local.retention.ms of the topic at the source'),
  },
  PRODUCER_ID_OUT_OF_RANGE: {
    retryable: false,
    advice: (place) => `${removeCommand(place)} and mirror from a cluster nearer to the origin`,
  },
  INCONSISTENT_TOPIC_ID: {
    retryable: false,
    advice: (place) => `${removeCommand(place)}, ${deleteHere(place)}, ${addCommand(place)}`,
  },
  UNSUPPORTED_MESSAGE_FORMAT: {
    retryable: false,
    advice: repair('have the source write the topic anew in message format v2'),
  },
  SOURCE_TOPIC_RECREATED: {
    retryable: false,
    advice: (place) =>
      `to follow the new one: ${removeCommand(place)}, ${deleteHere(place)}, ${addCommand(place)}`,
  },
} as const satisfies Record<string, CauseKind>;

/** A cause as kept in rows. */
export type MirrorCause = keyof typeof CAUSES;

/** What went wrong, on its way to the state machine. */
export class MirrorFailure extends Error {
  override readonly name = 'MirrorFailure';
  readonly mirrorCause: MirrorCause;
  constructor(mirrorCause: MirrorCause, message: string) {
    super(message);
    this.mirrorCause = mirrorCause;
  }
}

/**
 * The failure that anything thrown means. What nobody expected is contained to the partition that
 * met it, logged with its stack and tried again; a {@link Fault} is thrown on: the process stops.
 */
export function failureOf(error: unknown, logger: Logger): MirrorFailure {
  if (error instanceof Fault) throw error;
  if (error instanceof MirrorFailure) return error;
  if (error instanceof DiskError) return new MirrorFailure('STORAGE_BUSY', error.message);
  const text = error instanceof Error ? `${error.name}: ${error.message}` : String(error);
  const stack = error instanceof Error ? error.stack : undefined;
  logger.error('mirror: unexpected error', { error: text, stack });
  return new MirrorFailure('INTERNAL_ERROR', text);
}

/** The cause that a text names; SOURCE_ERROR for one that is no mirror's cause. */
export function causeOf(text: string): MirrorCause {
  return text in CAUSES ? (text as MirrorCause) : 'SOURCE_ERROR';
}

/** All causes, for documentation and tests. */
export function allCauses(): readonly MirrorCause[] {
  return Object.keys(CAUSES) as MirrorCause[];
}

/** Whether a partition with this cause retries by itself; a cause of a newer broker does. */
export function isRetryable(cause: string): boolean {
  return (CAUSES as Record<string, CauseKind | undefined>)[cause]?.retryable ?? true;
}

/** What resolves the cause, with the command (S5). */
export function adviceFor(cause: string, place: CausePlace): string {
  const kind = (CAUSES as Record<string, CauseKind | undefined>)[cause];
  return kind?.advice(place) ?? 'see the message';
}

/** The message of a cause, with what resolves it where nothing resolves itself (S5). */
export function explain(cause: string, message: string, place: CausePlace): string {
  return isRetryable(cause) ? message : `${message}. To resolve: ${adviceFor(cause, place)}.`;
}
