/**
 * A TCP proxy that delays every byte by a fixed time each way, to stand for distance.
 *
 *     node bench/delay-proxy.ts DELAY_MS LISTEN_PORT:TARGET_PORT…
 *
 * - Bandwidth is not limited: any number of chunks may be under way; what a sender has in flight is
 *   bounded by MAX_IN_FLIGHT_BYTES only, far above bandwidth times delay of the machine.
 * - It rewrites nothing: servers must advertise the proxy's port themselves.
 * - A new connection's first bytes wait one more round trip, as a TCP handshake would take.
 */
import { connect, createServer, type Socket } from 'node:net';

const MAX_IN_FLIGHT_BYTES = 256 * 1024 * 1024;

/** Sends what `from` receives to `to`, `delayMs` later, in order. */
function forward(from: Socket, to: Socket, delayMs: number, notBefore: number): void {
  const queue: { readonly due: number; readonly chunk: Buffer | undefined }[] = [];
  let bytes = 0;
  let scheduled = false;
  const schedule = (due: number): void => {
    scheduled = true;
    setTimeout(pump, due - performance.now());
  };
  const pump = (): void => {
    scheduled = false;
    const now = performance.now();
    let head = queue[0];
    while (head !== undefined && head.due <= now) {
      queue.shift();
      if (head.chunk === undefined) {
        to.end();
      } else {
        bytes -= head.chunk.length;
        to.write(head.chunk);
      }
      head = queue[0];
    }
    if (from.isPaused() && bytes < MAX_IN_FLIGHT_BYTES / 2) from.resume();
    if (head !== undefined) schedule(head.due);
  };
  const enqueue = (chunk: Buffer | undefined): void => {
    const due = Math.max(performance.now() + delayMs, notBefore);
    queue.push({ due, chunk });
    bytes += chunk?.length ?? 0;
    if (bytes > MAX_IN_FLIGHT_BYTES) from.pause();
    if (!scheduled) schedule(due);
  };
  from.on('data', enqueue);
  from.on('end', () => enqueue(undefined));
}

function serve(listenPort: number, targetPort: number, delayMs: number): void {
  const server = createServer({ noDelay: true, allowHalfOpen: true }, (client) => {
    const options = { port: targetPort, host: '127.0.0.1', noDelay: true, allowHalfOpen: true };
    const target = connect(options);
    for (const [one, other] of [
      [client, target],
      [target, client],
    ] as const) {
      one.on('error', () => other.destroy());
      one.on('close', () => setTimeout(() => other.destroy(), delayMs));
    }
    forward(client, target, delayMs, performance.now() + 3 * delayMs);
    forward(target, client, delayMs, 0);
  });
  server.listen(listenPort, '127.0.0.1');
}

const [delay, ...pairs] = process.argv.slice(2);
for (const pair of pairs) {
  const [listenPort, targetPort] = pair.split(':').map(Number);
  serve(listenPort ?? 0, targetPort ?? 0, Number(delay));
}
