/**
 * Kafka's `sasl.jaas.config` text: one login module with its options.
 *
 * Read by clients for their user name and password, and by listeners for the users that PLAIN knows
 * (`user_NAME="PASSWORD"`). Invariant: nothing of the text gets into a message, it holds secrets.
 */

/** A login module and what it is given. */
export interface JaasConfig {
  /** The last part of the class name, such as `PlainLoginModule`. */
  readonly module: string;
  readonly options: ReadonlyMap<string, string>;
}

const FLAGS = /^(required|requisite|sufficient|optional)$/i;
const WORD = /^[^\s=;"']+/;
const QUOTED = /^(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)')/s;
const ESCAPES: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t' };

function unescaped(text: string): string {
  return text.replace(/\\(.)/gs, (_all, character: string) => ESCAPES[character] ?? character);
}

/** Takes pieces off the front of a text. */
class Pieces {
  #rest: string;

  constructor(text: string) {
    this.#rest = text.trimStart();
  }

  get isAtEnd(): boolean {
    return this.#rest === '';
  }

  /** The next piece that matches, or undefined. */
  take(pattern: RegExp): RegExpExecArray | undefined {
    const match = pattern.exec(this.#rest);
    if (match === null) return undefined;
    this.#rest = this.#rest.slice(match[0].length).trimStart();
    return match;
  }

  value(): string | undefined {
    const quoted = this.take(QUOTED);
    if (quoted !== undefined) return unescaped(quoted[1] ?? quoted[2] ?? '');
    return this.take(WORD)?.[0];
  }
}

/** Parses the text; undefined when it is not `CLASS required NAME="VALUE" …;`. */
export function parseJaas(text: string): JaasConfig | undefined {
  const pieces = new Pieces(text);
  const className = pieces.take(WORD)?.[0];
  const flag = pieces.take(WORD)?.[0];
  if (className === undefined || flag === undefined || !FLAGS.test(flag)) return undefined;
  const options = new Map<string, string>();
  while (pieces.take(/^;/) === undefined) {
    const name = pieces.take(WORD)?.[0];
    if (name === undefined || pieces.take(/^=/) === undefined) return undefined;
    const value = pieces.value();
    if (value === undefined) return undefined;
    options.set(name, value);
  }
  if (!pieces.isAtEnd) return undefined;
  return { module: className.split('.').at(-1) ?? '', options };
}
