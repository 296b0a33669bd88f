/**
 * From the name in a client's certificate to its principal: `ssl.principal.mapping.rules`.
 *
 * Rules are `RULE:PATTERN/REPLACEMENT/` with an optional `L` or `U`, and `DEFAULT`, which takes the
 * whole name; the first one that matches counts. Parsed once at the start.
 */

interface Rule {
  /** Undefined: DEFAULT. */
  readonly pattern?: RegExp;
  readonly replacement: string;
  readonly letters: '' | 'L' | 'U';
}

const PART = String.raw`((?:\\.|[^\\/])*)`;
const ONE_RULE = new RegExp(`^(?:DEFAULT|RULE:${PART}/${PART}/([LU]?))(?=,|$)`);

function expression(pattern: string): RegExp {
  try {
    return new RegExp(`^(?:${pattern})$`, 's');
  } catch (error) {
    throw new Error(`ssl.principal.mapping.rules: ${(error as Error).message}.`);
  }
}

function parse(text: string): Rule[] {
  const rules: Rule[] = [];
  let rest = text.trim();
  while (rest !== '') {
    const match = ONE_RULE.exec(rest);
    if (match === null) {
      throw new Error(`ssl.principal.mapping.rules: ${rest} begins with no RULE:…/…/ or DEFAULT.`);
    }
    const [all, pattern, replacement = '', letters = ''] = match;
    rules.push({
      ...(pattern === undefined ? {} : { pattern: expression(pattern) }),
      replacement,
      letters: letters as Rule['letters'],
    });
    rest = rest.slice(all.length).replace(/^\s*,?\s*/, '');
  }
  return rules;
}

function withLetters(name: string, letters: Rule['letters']): string {
  if (letters === '') return name;
  return letters === 'L' ? name.toLowerCase() : name.toUpperCase();
}

/** Makes the mapping; throws with a sentence when the rules cannot be read. */
export function principalMapping(text: string): (subject: string) => string | undefined {
  const rules = parse(text);
  return (subject) => {
    for (const { pattern, replacement, letters } of rules) {
      if (pattern === undefined) return subject;
      if (pattern.test(subject)) return withLetters(subject.replace(pattern, replacement), letters);
    }
    return undefined;
  };
}
