/**
 * Waits until new topics can be written to.
 *
 * A controller names a partition's leader before the broker knows that it is; on a busy machine
 * clients that come between are told of an unknown topic and may give up, or a producer's first
 * batch is refused and those behind it never come into order.
 */
import { setTimeout as sleep } from 'node:timers/promises';
import { RawClient } from '../test/interop/raw-client.ts';

const POLL_MS = 10;
/** The timestamp that ListOffsets takes for the end. */
const LATEST = -1n;

/** Asks the broker, which leads them all, about every partition until each one answers. */
export async function awaitServed(
  bootstrap: string,
  topics: readonly string[],
  boundMs = 60_000,
): Promise<void> {
  const [host = '', port = ''] = bootstrap.split(':');
  await using client = await RawClient.connect(host, Number(port), boundMs);
  const deadline = performance.now() + boundMs;
  const again = async (why: string): Promise<void> => {
    if (performance.now() > deadline) throw new Error(`${bootstrap}: ${why}`);
    await sleep(POLL_MS);
  };
  for (const topic of topics) {
    let found = (await client.metadata([topic])).topics[0];
    while (found === undefined || found.error !== 0) {
      await again(`${topic} is not known`);
      found = (await client.metadata([topic])).topics[0];
    }
    for (const { partition } of found.partitions) {
      while ((await client.findOffset(topic, partition, LATEST)).error !== 0) {
        await again(`${topic}-${partition} is not served`);
      }
    }
  }
}
