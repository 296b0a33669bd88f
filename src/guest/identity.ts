/**
 * Who a guest is to its cluster, kept in its data directory over restarts (rule G4).
 *
 * Used by the composition root of a guest: `open` before anything else of the directory is touched,
 * `begin` when the logs are recovered, `registered` with every broker epoch the controller gives.
 * Invariants:
 * - The file is durable before the controller hears of what it says, and before a broker epoch is
 *   used: the next start always finds the last incarnation and the last epoch.
 * - An incarnation goes on only if no log can have lost anything since (`mayKeepIncarnation`).
 */
import { parseUuid, randomUuid, type Uuid } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import type { BrokerRegistrationImage, MetadataImage } from '../metadata/image.ts';
import { CorruptCheckpoint, writeFileAtomically } from '../storage/checkpoints.ts';
import { readMetaProperties, writeMetaProperties } from '../storage/meta-properties.ts';

/** The file's name in the data directory. */
export const GUEST_IDENTITY_FILE = 'guest-identity.json';

/** What is kept. */
export interface GuestIdentity {
  readonly nodeId: number;
  readonly directoryId: Uuid;
  readonly incarnationId: Uuid;
  /** The last one that the controller gave; −1 before the first. */
  readonly brokerEpoch: number;
  /** Of the machine, when the incarnation was last used. */
  readonly bootId: string;
}

/** What a start finds out before it registers. */
export interface GuestStart {
  readonly clusterId: string;
  /** Differs after every start of the machine, and so after every loss of power. */
  readonly bootId: string;
  /** Whether every log was recovered to where it ended. */
  readonly recoveryCutNothing: boolean;
  /** What the controller has registered under the node id. */
  readonly registration: BrokerRegistrationImage | undefined;
}

/**
 * Whether a start may go on as the incarnation before: then leadership and epochs stay. Not after
 * the machine went down (its page cache is gone), nor when recovery cut a log, since a replica that
 * lost records must not come back as if nothing had happened; and not after a controlled shutdown,
 * as the controller keeps an incarnation that is shutting down from ever leading again.
 */
export function mayKeepIncarnation(known: GuestIdentity, start: GuestStart): boolean {
  const { bootId, recoveryCutNothing, registration } = start;
  if (known.bootId !== bootId || !recoveryCutNothing) return false;
  if (registration === undefined) return true;
  return registration.incarnationId === known.incarnationId && !registration.inControlledShutdown;
}

/** Why a node may not join under its id (rule G11), as a sentence; undefined when it may. */
export function nodeIdProblem(
  image: MetadataImage,
  controllerIds: readonly number[],
  { nodeId, directoryId }: Pick<GuestIdentity, 'nodeId' | 'directoryId'>,
): string | undefined {
  if (controllerIds.includes(nodeId)) {
    return `Node id ${nodeId} is that of a controller: give the guest another one.`;
  }
  const broker = image.brokers.get(nodeId);
  if (broker === undefined || broker.logDirs.includes(directoryId)) return undefined;
  return (
    `Node id ${nodeId} is registered by a broker with another data directory: give the guest ` +
    `another id, or, if that broker is gone for good, unregister it (kafka-cluster.sh unregister).`
  );
}

interface Opened {
  readonly nodeId: number;
  readonly directoryId: Uuid;
  /** That of the directory; undefined while it is new. */
  readonly clusterId: string | undefined;
}

/** See the file header. */
export class GuestIdentityFile {
  readonly #runtime: Pick<Runtime, 'disk' | 'random'>;
  readonly #dataDir: string;
  #opened: Opened;
  #identity: GuestIdentity | undefined;

  private constructor(
    runtime: Pick<Runtime, 'disk' | 'random'>,
    dataDir: string,
    opened: Opened,
    identity: GuestIdentity | undefined,
  ) {
    this.#runtime = runtime;
    this.#dataDir = dataDir;
    this.#opened = opened;
    this.#identity = identity;
  }

  /** Reads what is there, writes nothing; throws for people when it is another node's. */
  static open(
    runtime: Pick<Runtime, 'disk' | 'random'>,
    dataDir: string,
    nodeId: number,
  ): GuestIdentityFile {
    const meta = readMetaProperties(runtime.disk, dataDir);
    const identity = readIdentity(runtime, dataDir);
    const owner = identity?.nodeId ?? meta?.nodeId ?? nodeId;
    if (owner !== nodeId) {
      throw new Error(
        `${dataDir} belongs to node ${owner}, not to node ${nodeId}: ` +
          'set node.id or use another data directory',
      );
    }
    if (meta !== undefined && identity === undefined) {
      throw new Error(
        `${dataDir} holds the data of a broker that is no guest: use another data directory`,
      );
    }
    const directoryId = identity?.directoryId ?? newUuid(runtime);
    const opened = { nodeId, directoryId, clusterId: meta?.clusterId };
    return new GuestIdentityFile(runtime, dataDir, opened, identity);
  }

  /** Cluster, node and directory, as far as they are known. */
  get opened(): Opened {
    return this.#opened;
  }

  /** Settles and keeps the incarnation; `brokerEpoch` of the result is the previous one. */
  begin(start: GuestStart): GuestIdentity {
    const { nodeId, directoryId, clusterId = start.clusterId } = this.#opened;
    if (clusterId !== start.clusterId) {
      throw new Error(
        `${this.#dataDir} belongs to cluster ${clusterId}, the controllers are of ` +
          `${start.clusterId}: name the controllers of that cluster, or use another data directory`,
      );
    }
    const known = this.#identity;
    const keeps = known !== undefined && mayKeepIncarnation(known, start);
    const identity: GuestIdentity = {
      nodeId,
      directoryId,
      incarnationId: keeps ? known.incarnationId : newUuid(this.#runtime),
      brokerEpoch: known?.brokerEpoch ?? -1,
      bootId: start.bootId,
    };
    // First the identity: a directory with a meta.properties alone is taken for a broker's.
    this.#write(identity);
    writeMetaProperties(this.#runtime.disk, this.#dataDir, { clusterId, nodeId, directoryId });
    this.#opened = { nodeId, directoryId, clusterId };
    return identity;
  }

  /** Keeps a broker epoch. */
  registered(brokerEpoch: number): void {
    const identity = this.#identity;
    if (identity === undefined) throw new Error('a broker epoch before the incarnation');
    if (identity.brokerEpoch !== brokerEpoch) this.#write({ ...identity, brokerEpoch });
  }

  #write(identity: GuestIdentity): void {
    const path = `${this.#dataDir}/${GUEST_IDENTITY_FILE}`;
    writeFileAtomically(this.#runtime.disk, path, `${JSON.stringify(identity, undefined, 2)}\n`);
    this.#identity = identity;
  }
}

function newUuid({ random }: Pick<Runtime, 'random'>): Uuid {
  return randomUuid((length) => random.bytes(length));
}

function readIdentity({ disk }: Pick<Runtime, 'disk'>, dataDir: string): GuestIdentity | undefined {
  const path = `${dataDir}/${GUEST_IDENTITY_FILE}`;
  const bytes = disk.readFile(path);
  if (bytes === undefined) return undefined;
  const value = parseJson(Buffer.from(bytes).toString('utf8'), path);
  const field = (name: string): unknown =>
    typeof value === 'object' && value !== null
      ? (value as Readonly<Record<string, unknown>>)[name]
      : undefined;
  const [nodeId, brokerEpoch, bootId] = [field('nodeId'), field('brokerEpoch'), field('bootId')];
  const directoryId = parseUuid(String(field('directoryId')));
  const incarnationId = parseUuid(String(field('incarnationId')));
  const isWhole =
    Number.isSafeInteger(nodeId) &&
    Number.isSafeInteger(brokerEpoch) &&
    typeof bootId === 'string' &&
    directoryId !== undefined &&
    incarnationId !== undefined;
  if (!isWhole) throw new CorruptCheckpoint(`${path}: not the identity of a guest`);
  return {
    nodeId: nodeId as number,
    brokerEpoch: brokerEpoch as number,
    bootId,
    directoryId,
    incarnationId,
  };
}

function parseJson(text: string, path: string): unknown {
  try {
    return JSON.parse(text);
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error;
    throw new CorruptCheckpoint(`${path}: ${error.message}`);
  }
}
