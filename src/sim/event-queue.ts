/**
 * The simulator's queue: events by (virtual time, order of insertion), as a binary heap.
 *
 * Two events of the same moment run in the order they were scheduled; that is what makes `defer`
 * and in-order delivery hold, and a run repeatable.
 */

/** Something that will happen. A cancelled event stays queued and is skipped. */
export interface SimEvent {
  readonly atMs: number;
  readonly order: number;
  readonly label: string;
  readonly run: () => void;
  cancelled: boolean;
}

function before(a: SimEvent, b: SimEvent): boolean {
  return a.atMs < b.atMs || (a.atMs === b.atMs && a.order < b.order);
}

/** A min-heap of events. */
export class EventQueue {
  readonly #heap: SimEvent[] = [];

  get size(): number {
    return this.#heap.length;
  }

  peek(): SimEvent | undefined {
    return this.#heap[0];
  }

  push(event: SimEvent): void {
    const heap = this.#heap;
    let hole = heap.length;
    heap.push(event);
    while (hole > 0) {
      const parent = (hole - 1) >> 1;
      if (!before(event, heap[parent]!)) break;
      heap[hole] = heap[parent]!;
      hole = parent;
    }
    heap[hole] = event;
  }

  /** Removes and returns the earliest event. */
  pop(): SimEvent | undefined {
    const heap = this.#heap;
    const first = heap[0];
    const last = heap.pop();
    if (first === undefined || last === undefined || heap.length === 0) return first;
    let hole = 0;
    for (;;) {
      let child = 2 * hole + 1;
      if (child >= heap.length) break;
      if (child + 1 < heap.length && before(heap[child + 1]!, heap[child]!)) child++;
      if (!before(heap[child]!, last)) break;
      heap[hole] = heap[child]!;
      hole = child;
    }
    heap[hole] = last;
    return first;
  }
}
