/**
 * Splits TypeScript text into what is code and what is comment, without parsing it.
 *
 * Both results have the length and the line breaks of the text. In `code`, comments and the inside
 * of strings, templates and regular expressions are blank; in `comments`, all but comments is.
 */

/** The two views of a text. */
export interface Masked {
  readonly code: string;
  readonly comments: string;
}

/** After these a slash begins a regular expression, after other words it divides. */
const BEFORE_REGEX =
  /(?:^|[^\w$.)\]])$|\b(?:return|typeof|case|in|of|delete|void|throw|new|else|do|await|yield)$/;

const blank = (text: string): string => text.replace(/[^\n]/g, ' ');

/** The end of a quoted string that starts at `start`. */
function endOfString(text: string, start: number): number {
  const quote = text[start];
  let at = start + 1;
  while (at < text.length && text[at] !== quote && text[at] !== '\n')
    at += text[at] === '\\' ? 2 : 1;
  return at + 1;
}

/** The end of a regular expression, or undefined when the line ends first: then it divides. */
function endOfRegex(text: string, start: number): number | undefined {
  let inClass = false;
  for (let at = start + 1; at < text.length && text[at] !== '\n'; at++) {
    const c = text[at];
    if (c === '\\') at++;
    else if (c === '[') inClass = true;
    else if (c === ']') inClass = false;
    else if (c === '/' && !inClass) return at + 1;
  }
  return undefined;
}

function endOfComment(text: string, start: number): number | undefined {
  if (text.startsWith('//', start)) {
    const end = text.indexOf('\n', start);
    return end < 0 ? text.length : end;
  }
  if (!text.startsWith('/*', start)) return undefined;
  const end = text.indexOf('*/', start + 2);
  return end < 0 ? text.length : end + 2;
}

class Masker {
  code = '';
  comments = '';
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  /** Code up to the end, or to the brace that closes a template's substitution. */
  run(inTemplate: boolean): void {
    let depth = 0;
    while (this.#at < this.#text.length) {
      const c = this.#text[this.#at]!;
      if (inTemplate && c === '}' && depth === 0) return;
      if (c === '{') depth++;
      if (c === '}') depth--;
      this.#token(c);
    }
  }

  #token(c: string): void {
    const comment = c === '/' ? endOfComment(this.#text, this.#at) : undefined;
    if (comment !== undefined) this.#comment(comment);
    else if (c === "'" || c === '"') this.#quoted(endOfString(this.#text, this.#at));
    else if (c === '`') this.#template();
    else if (c === '/' && BEFORE_REGEX.test(this.code.slice(-12).trimEnd())) {
      const end = endOfRegex(this.#text, this.#at);
      if (end === undefined) this.#plain(1);
      else this.#quoted(end);
    } else this.#plain(1);
  }

  #plain(length: number): void {
    const text = this.#text.slice(this.#at, this.#at + length);
    this.code += text;
    this.comments += blank(text);
    this.#at += length;
  }

  /** Keeps the delimiters, blanks what is between. */
  #quoted(end: number): void {
    const text = this.#text.slice(this.#at, end);
    this.code += text.length < 2 ? text : text[0] + blank(text.slice(1, -1)) + text.at(-1);
    this.comments += blank(text);
    this.#at = end;
  }

  #comment(end: number): void {
    const text = this.#text.slice(this.#at, end);
    this.code += blank(text);
    this.comments += text;
    this.#at = end;
  }

  #template(): void {
    this.#plain(1);
    while (this.#at < this.#text.length && this.#text[this.#at] !== '`') {
      if (this.#text.startsWith('${', this.#at)) {
        this.#plain(2);
        this.run(true);
        this.#plain(1);
        continue;
      }
      const length = this.#text[this.#at] === '\\' ? 2 : 1;
      const text = blank(this.#text.slice(this.#at, this.#at + length));
      this.code += text;
      this.comments += text;
      this.#at += length;
    }
    this.#plain(1);
  }
}

/** See the file header. */
export function mask(text: string): Masked {
  const masker = new Masker(text);
  masker.run(false);
  return { code: masker.code, comments: masker.comments };
}
