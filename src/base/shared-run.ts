/**
 * One run of a job for all who ask for it before it starts.
 *
 * For jobs that answer "as of now" (reading to the end of a log, asking for metadata): whoever asks
 * while a run is under way must not get its answer, which may be older than the question, and
 * shares the next run with the others who wait. Runs never overlap.
 */

/** See the file header. */
export class SharedRun<T> {
  readonly #job: () => Promise<T>;
  #current: Promise<unknown> = Promise.resolve();
  #next: Promise<T> | undefined;

  constructor(job: () => Promise<T>) {
    this.#job = job;
  }

  /** The outcome of a run that starts after this call. */
  run(): Promise<T> {
    if (this.#next === undefined) {
      const start = (): Promise<T> => {
        this.#next = undefined;
        const run = this.#job();
        this.#current = run;
        return run;
      };
      // How the run before ended concerns those who asked for it.
      this.#next = this.#current.then(start, start);
    }
    return this.#next;
  }
}
