/**
 * Why a mirror partition failed or is held up (rule S5): the causes, and what resolves each.
 *
 * Causes are text in rows and in DescribeMirrors. Retryable ones are tried again with backoff for
 * ever; the others need a person, and their advice names the command.
 */

interface CauseKind {
  readonly retryable: boolean;
  /** What an operator can do; for a retryable cause, what to look at. */
  readonly advice: string;
}

const REMOVE_AND_ADD = 'remove the topic from the mirror, then add it again';

const CAUSES = {
  SOURCE_UNREACHABLE: { retryable: true, advice: 'check bootstrap.servers and the network' },
  SOURCE_AUTHENTICATION_FAILED: { retryable: true, advice: "check the mirror's credentials" },
  SOURCE_AUTHORIZATION_FAILED: { retryable: true, advice: 'grant READ and DESCRIBE at the source' },
  SOURCE_TIMED_OUT: { retryable: true, advice: 'check the load of the source and the network' },
  SOURCE_LEADER_UNKNOWN: { retryable: true, advice: 'check the partition at the source' },
  SOURCE_TOPIC_MISSING: { retryable: true, advice: 'check that the topic exists at the source' },
  SOURCE_ERROR: { retryable: true, advice: 'see the message' },
  STORAGE_BUSY: { retryable: true, advice: "check this broker's disks" },
  DESTINATION_BUSY: { retryable: true, advice: 'see the message' },
  SOURCE_CLUSTER_CHANGED: {
    retryable: false,
    advice: 'point bootstrap.servers back to the recorded cluster, or create another mirror',
  },
  LOOP: { retryable: false, advice: 'stop the mirror of this topic in the other direction' },
  SOURCE_DIVERGED: { retryable: false, advice: `${REMOVE_AND_ADD} with full resync` },
  WOULD_DISCARD_ALL: { retryable: false, advice: `${REMOVE_AND_ADD} with full resync` },
  CORRUPT_SOURCE_BATCH: { retryable: false, advice: 'repair the source replica, then retry' },
  TIERED_STORAGE: {
    retryable: false,
    advice: `${REMOVE_AND_ADD} when the source holds the data locally`,
  },
  PRODUCER_ID_OUT_OF_RANGE: {
    retryable: false,
    advice: 'shorten the chain of mirrors that feeds the source',
  },
  INCONSISTENT_TOPIC_ID: { retryable: false, advice: REMOVE_AND_ADD },
  UNSUPPORTED_MESSAGE_FORMAT: {
    retryable: false,
    advice: 'have the source rewrite the topic in message format v2',
  },
  SOURCE_TOPIC_RECREATED: {
    retryable: false,
    advice: 'delete the topic here and add the new one',
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

/** All causes, for documentation and tests. */
export function allCauses(): readonly MirrorCause[] {
  return Object.keys(CAUSES) as MirrorCause[];
}

/** Whether a partition with this cause retries by itself; a cause of a newer broker does. */
export function isRetryable(cause: string): boolean {
  return (CAUSES as Record<string, CauseKind | undefined>)[cause]?.retryable ?? true;
}

/** What resolves the cause. */
export function adviceFor(cause: string): string {
  return (CAUSES as Record<string, CauseKind | undefined>)[cause]?.advice ?? 'see the message';
}
