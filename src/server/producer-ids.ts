/**
 * Hands out producer ids to idempotent producers, from blocks that the controller reserves.
 *
 * Ids are ≥ 0 and never repeat in a cluster; those of a block that was not used up are lost with
 * the process, which is legal (KIP-730). Mirrored ids are ≤ −2 (rule P1), so the two can never
 * collide.
 */
import type { ControllerPort } from '../metadata/controller-port.ts';
import { errors } from '../protocol/errors.ts';

/** One id, or the error code that says why there is none. */
export type ProducerIdResult = { readonly producerId: bigint } | { readonly error: number };

/** Allocates producer ids on one broker. */
export class ProducerIds {
  readonly #controller: ControllerPort;
  readonly #broker: () => { readonly id: number; readonly epoch: number };
  #next = 0n;
  #end = 0n;
  #refill: Promise<number> | undefined;

  constructor(
    controller: ControllerPort,
    broker: () => { readonly id: number; readonly epoch: number },
  ) {
    this.#controller = controller;
    this.#broker = broker;
  }

  /** The next id; asks the controller for a block when the last one is used up. */
  async next(): Promise<ProducerIdResult> {
    while (this.#next >= this.#end) {
      this.#refill ??= this.#fill().finally(() => {
        this.#refill = undefined;
      });
      const error = await this.#refill;
      if (error !== errors.NONE.code) return { error };
    }
    const producerId = this.#next;
    this.#next += 1n;
    return { producerId };
  }

  async #fill(): Promise<number> {
    const { id, epoch } = this.#broker();
    const block = await this.#controller.allocateProducerIds(id, epoch);
    if (!('firstProducerId' in block)) return block.error;
    this.#next = block.firstProducerId;
    this.#end = block.firstProducerId + BigInt(block.length);
    return errors.NONE.code;
  }
}
