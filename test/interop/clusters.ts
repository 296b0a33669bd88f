/**
 * The clusters and clients that interop tests share: started at first use, once per test process,
 * and stopped after its last test.
 *
 * A test file imports this, skips by `interopSkipReason()`, and asks for what it needs. Topics must
 * have names of their own; a test that stops a shared broker starts it again.
 */
import { after } from 'node:test';
import { type KafkaCluster, startKafka } from './apache-kafka.ts';
import { ensureAppCds } from './app-cds.ts';
import type { ClientUnderTest } from './client.ts';
import { startGuest } from './guest.ts';
import { type HardTopic, writeHardTopic } from './hard-topic.ts';
import { JavaClient } from './java-client.ts';
import { availableClients } from './other-clients.ts';
import { startTwinlog, type TwinlogBroker } from './twinlog.ts';

const stops: (() => Promise<void>)[] = [];

/** Makes a getter that runs `start` once; `stop` runs after the last test. */
function lazy<T>(start: () => Promise<T>, stop: (value: T) => Promise<void>): () => Promise<T> {
  let value: Promise<T> | undefined;
  return () => {
    if (value === undefined) {
      value = start();
      value.then(
        (started) => stops.push(() => stop(started)),
        () => undefined, // whoever asked sees the error; there is nothing to stop
      );
    }
    return value;
  };
}

const withArchive = lazy(ensureAppCds, async () => undefined);

/** The single-broker source cluster. */
export const sourceCluster = lazy(
  async () => {
    await withArchive();
    return await startKafka({ name: 'source' });
  },
  (cluster: KafkaCluster) => cluster.destroy(),
);

/** A source of two brokers and a controller of its own: either broker may go. */
export const twoBrokerSource = lazy(
  async () => {
    await withArchive();
    return await startKafka({ name: 'source2', brokers: 2 });
  },
  (cluster: KafkaCluster) => cluster.destroy(),
);

/** The twinlog broker that mirrors go to. */
export const destination = lazy(
  () => startTwinlog({ name: 'twinlog' }),
  (broker: TwinlogBroker) => broker.destroy(),
);

/** A cluster for guests: three controllers of their own and three brokers. */
export const guestCluster = lazy(
  async () => {
    await withArchive();
    return await startKafka({ name: 'target', brokers: 3, controllers: 3 });
  },
  (cluster: KafkaCluster) => cluster.destroy(),
);

/** The guest of {@link guestCluster}. */
export const guest = lazy(
  async () => await startGuest({ name: 'guest', cluster: await guestCluster() }),
  (broker: TwinlogBroker) => broker.destroy(),
);

/** The Java client. */
export const javaClient = lazy(
  async () => {
    await withArchive();
    return await JavaClient.start();
  },
  (java) => java.close(),
);

/** All clients under test. */
export const clients: () => Promise<ClientUnderTest[]> = lazy(
  async () => await availableClients(await javaClient()),
  async () => undefined,
);

/** The hard topic on the single-broker source. */
export const hardTopic: () => Promise<HardTopic> = lazy(
  async () => await writeHardTopic(await sourceCluster(), await javaClient()),
  async () => undefined,
);

after(async () => {
  for (const stop of stops.reverse()) await stop();
});
