import type { CloseReason, Connection, ConnectionOwner, Runtime } from '../../src/io/runtime.ts';
import { WAN_PROFILE } from '../../src/sim/sim-links.ts';
import { SimWorld } from '../../src/sim/sim-runtime.ts';

/** An owner that keeps what it hears. */
export class Ear implements ConnectionOwner {
  readonly #buffer: Uint8Array;
  readonly chunks: Buffer[] = [];
  reason: CloseReason | undefined;
  writables = 0;
  onReceived: () => void = () => {};

  constructor(bufferBytes = 4096) {
    this.#buffer = new Uint8Array(bufferBytes);
  }
  receiveBuffer(): Uint8Array {
    return this.#buffer;
  }
  received(length: number): void {
    this.chunks.push(Buffer.from(this.#buffer.subarray(0, length)));
    this.onReceived();
  }
  writable(): void {
    this.writables++;
  }
  closed(reason: CloseReason): void {
    if (this.reason !== undefined) throw new Error('closed twice');
    this.reason = reason;
  }
  get bytes(): Buffer {
    return Buffer.concat(this.chunks);
  }
}

/** Whether a connect succeeded. */
export function isConnection(answer: Connection | CloseReason): answer is Connection {
  return 'write' in answer;
}

/** Dials `peer` again whenever the connection is lost, and says something random now and then. */
function talk(runtime: Runtime, peer: string, heard: string[]): void {
  const dial = async (): Promise<void> => {
    const answer = await runtime.network.connect(peer, 9092, 500);
    if (!isConnection(answer)) {
      heard.push(answer.cause);
      runtime.clock.setTimer(50, () => void dial());
      return;
    }
    const ear = new Ear(100);
    answer.start(
      Object.assign(ear, {
        closed: (reason: CloseReason) => {
          heard.push(reason.cause);
          runtime.clock.setTimer(50, () => void dial());
        },
      }),
    );
    const say = (): void => {
      answer.write([runtime.random.bytes(1 + Math.floor(runtime.random.fraction() * 3000))]);
      runtime.clock.setTimer(runtime.random.fraction() * 40, say);
    };
    say();
  };
  void dial();
}

/** Machines that echo, log to disk, are partitioned, reset, killed and started again. */
export async function chatter(
  seed: number,
): Promise<{ hash: string; heard: string[]; events: number }> {
  const world = new SimWorld(seed);
  const heard: string[] = [];
  const names = ['a', 'b', 'c'];
  world.network.links.set('a', 'c', { ...WAN_PROFILE, resetChance: 0.01 });
  const boot = (name: string): void => {
    const runtime = world.start(name);
    const log = runtime.disk.open('/log', 'create');
    const ear = (connection: Connection): void => {
      const owner = new Ear(777);
      owner.onReceived = () => {
        const bytes = owner.chunks.at(-1)!;
        log.write([bytes], log.size());
        connection.write([bytes]);
        void log.sync();
      };
      connection.start(owner);
    };
    void runtime.network.listen(name, 9092, ear);
    for (const peer of names) if (peer !== name) talk(runtime, peer, heard);
  };
  for (const name of names) boot(name);
  await world.simulator.runFor(300);
  world.network.cut('a', 'b');
  await world.simulator.runFor(200);
  world.kill('c');
  await world.simulator.runFor(100);
  world.network.healAll();
  world.losePower('a', { unsynced: 'subset', tornTail: true });
  boot('c');
  await world.simulator.runFor(100);
  boot('a');
  await world.simulator.runFor(300);
  return { hash: world.simulator.traceHash, heard, events: world.simulator.eventCount };
}
