/**
 * The controller over the real log on a simulated disk that loses power: what was answered is
 * there, what was not is there whole or not at all, and nothing is handed out twice.
 */
import assert from 'node:assert/strict';
import { describe, it } from 'node:test';
import type { Runtime } from '../../src/io/runtime.ts';
import type { EmbeddedController } from '../../src/metadata/embedded-controller.ts';
import { MetadataLoader } from '../../src/metadata/metadata-loader.ts';
import { openMetadataLog } from '../../src/metadata/metadata-log.ts';
import { noCompression } from '../../src/sim/sim-compression.ts';
import { noCrypto } from '../../src/sim/sim-crypto.ts';
import { SimDisk } from '../../src/sim/sim-disk.ts';
import { SimProcess, simClock, simLogger, simRandom } from '../../src/sim/sim-process.ts';
import { Simulator } from '../../src/sim/simulator.ts';
import { DEFAULT_LOG_CONFIG } from '../../src/storage/log-config.ts';
import { LogManager } from '../../src/storage/log-manager.ts';
import {
  CLUSTER_ID,
  createTopics,
  heartbeat,
  newTopic,
  openController,
  registration,
} from './harness.ts';

const LOG_DIR = '/data';
const LIVES = 6;

/** One life of a node: its process, controller and loader. */
class Life {
  readonly process: SimProcess;
  readonly runtime: Runtime;
  controller: EmbeddedController | undefined;
  readonly loader = new MetadataLoader(CLUSTER_ID, []);
  brokerEpoch = -1;

  constructor(simulator: Simulator, disk: SimDisk, life: number) {
    this.process = new SimProcess(simulator, 'node', life);
    this.runtime = {
      clock: simClock(simulator, this.process),
      random: simRandom(simulator, this.process),
      disk: disk.portFor(this.process),
      network: {
        listen: () => assert.fail('no network here'),
        connect: () => assert.fail('no network here'),
      },
      compression: noCompression,
      crypto: noCrypto,
      logger: simLogger(simulator, this.process),
    };
  }

  async start(incarnation: number): Promise<void> {
    const logManager = new LogManager(this.runtime, {
      logDir: LOG_DIR,
      defaultConfig: DEFAULT_LOG_CONFIG,
    });
    logManager.load(() => DEFAULT_LOG_CONFIG);
    const controller = await openController(this.runtime, openMetadataLog(logManager));
    const { brokerEpoch } = await controller.registerBroker(registration(0, incarnation));
    await this.loader.start(controller);
    await controller.brokerHeartbeat(heartbeat(0, brokerEpoch));
    this.brokerEpoch = brokerEpoch;
    this.controller = controller;
  }
}

/** What clients were told. */
interface Told {
  readonly pairs: number[];
  readonly producerIds: Set<bigint>;
  readonly epochs: Set<number>;
}

function work(simulator: Simulator, life: Life, next: { pair: number }, told: Told): void {
  const { controller } = life;
  if (controller === undefined) return;
  const pair = next.pair++;
  const request = createTopics([`a${pair}`, `b${pair}`].map((name) => newTopic(name)));
  controller.forward(19, 7, request, { principal: 'User:test' }).then(
    () => told.pairs.push(pair),
    () => assert.fail('the log has not failed'),
  );
  if (simulator.random.chance(0.5)) {
    controller.allocateProducerIds(0, life.brokerEpoch).then((block) => {
      assert.ok('firstProducerId' in block);
      assert.equal(told.producerIds.has(block.firstProducerId), false);
      told.producerIds.add(block.firstProducerId);
    }, assert.fail);
  }
}

async function run(seed: number): Promise<void> {
  const simulator = new Simulator(seed);
  const disk = new SimDisk(simulator.fork('disk'));
  const told: Told = { pairs: [], producerIds: new Set(), epochs: new Set() };
  const next = { pair: 0 };
  for (let number = 1; number <= LIVES; number++) {
    const life = new Life(simulator, disk, number);
    const started = life.start(number);
    // Some lives end before they have begun.
    const early = number < LIVES && simulator.random.chance(0.2);
    if (early) {
      await simulator.runFor(simulator.random.below(10));
      started.catch(() => {});
    } else {
      await simulator.runUntil(() => life.controller !== undefined, 60_000, 'the start');
      const { image } = life.loader;
      assert.equal(told.epochs.has(image.epoch), false, 'an epoch of its own');
      told.epochs.add(image.epoch);
      for (const pair of told.pairs) assert.ok(image.topicsByName.has(`a${pair}`), `a${pair}`);
      for (let pair = 0; pair < next.pair; pair++) {
        const whole = image.topicsByName.has(`a${pair}`) === image.topicsByName.has(`b${pair}`);
        assert.ok(whole, `pair ${pair} is there whole or not at all`);
      }
      for (let i = simulator.random.below(12); i >= 0; i--) {
        work(simulator, life, next, told);
        await simulator.runFor(simulator.random.below(4));
      }
    }
    life.process.end();
    const unsynced = (['lose', 'prefix', 'subset'] as const)[simulator.random.below(3)] ?? 'lose';
    disk.losePower({ unsynced, tornTail: simulator.random.chance(0.5) });
  }
  assert.ok(told.pairs.length > 0, 'something was answered');
}

describe('the metadata log and power loss', () => {
  for (let seed = 1; seed <= 25; seed++) {
    it(`keeps what was answered, and every request whole (seed ${seed})`, () => run(seed));
  }
});
