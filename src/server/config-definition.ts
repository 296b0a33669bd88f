/**
 * What a setting is: name, type, default, legal values; and how its text is checked.
 *
 * Broker settings (broker-config.ts) and topic settings (topic-config.ts) are tables of these;
 * nothing else knows a default or a range. Kept free of what the settings mean, so that a message
 * about a bad value always names the setting, the value and what would be legal.
 */

import { assert } from '../base/assert.ts';

/** Kafka's ConfigDef types with their codes in DescribeConfigs responses (KIP-569). */
export const configTypes = {
  boolean: 1,
  string: 2,
  int: 3,
  short: 4,
  long: 5,
  double: 6,
  list: 7,
  class: 8,
  password: 9,
} as const;

/** A key of {@link configTypes}. */
export type ConfigType = keyof typeof configTypes;

/** One setting. */
export interface ConfigDefinition {
  readonly name: string;
  readonly type: ConfigType;
  /** Text of the default; null: no value unless one is set. */
  readonly default: string | null;
  readonly doc: string;
  /** Least and greatest number, both legal. */
  readonly min?: number;
  readonly max?: number;
  /** Legal words (`list`: of each element). */
  readonly values?: readonly string[];
  /** The broker setting that gives this topic setting its default. */
  readonly brokerSynonym?: string;
  /** May be changed on a running broker. */
  readonly dynamic?: boolean;
}

const INTEGER_RANGE: Partial<Record<ConfigType, readonly [bigint, bigint]>> = {
  short: [-(2n ** 15n), 2n ** 15n - 1n],
  int: [-(2n ** 31n), 2n ** 31n - 1n],
  long: [-(2n ** 63n), 2n ** 63n - 1n],
};

/** Elements of a comma list, trimmed; the empty text has none. */
export function parseList(value: string): string[] {
  const trimmed = value.trim();
  return trimmed === '' ? [] : trimmed.split(',').map((element) => element.trim());
}

function checkNumber(definition: ConfigDefinition, value: string): string | undefined {
  const range = INTEGER_RANGE[definition.type];
  const text = value.trim();
  if (range && !/^[+-]?\d+$/.test(text)) return 'it must be a whole number';
  if (!range && !Number.isFinite(Number(text === '' ? 'x' : text))) return 'it must be a number';
  if (range && (BigInt(text) < range[0] || BigInt(text) > range[1])) {
    return `it must fit a ${definition.type}`;
  }
  const number = Number(text);
  if (definition.min !== undefined && number < definition.min) {
    return `it must be at least ${definition.min}`;
  }
  if (definition.max !== undefined && number > definition.max) {
    return `it must be at most ${definition.max}`;
  }
  return undefined;
}

function problemWith(definition: ConfigDefinition, value: string): string | undefined {
  switch (definition.type) {
    case 'boolean':
      return /^(true|false)$/i.test(value.trim()) ? undefined : 'it must be true or false';
    case 'int':
    case 'short':
    case 'long':
    case 'double':
      return checkNumber(definition, value);
    case 'list': {
      const elements = parseList(value);
      const bad = elements.find((element) => !(definition.values?.includes(element) ?? true));
      return bad === undefined ? undefined : `each element must be ${oneOf(definition)}`;
    }
    default:
      return (definition.values?.includes(value.trim()) ?? true)
        ? undefined
        : `it must be ${oneOf(definition)}`;
  }
}

function oneOf(definition: ConfigDefinition): string {
  return `one of ${(definition.values ?? []).join(', ')}`;
}

/** A sentence on what is wrong with `value`, or undefined when it is legal. */
export function checkConfigValue(definition: ConfigDefinition, value: string): string | undefined {
  const problem = problemWith(definition, value);
  if (problem === undefined) return undefined;
  return `Invalid value ${value} for configuration ${definition.name}: ${problem}.`;
}

/** Definitions by name; a Fault when two share one. */
export function definitionTable(
  definitions: readonly ConfigDefinition[],
): ReadonlyMap<string, ConfigDefinition> {
  const table = new Map(definitions.map((definition) => [definition.name, definition]));
  assert(table.size === definitions.length, 'two settings have the same name');
  return table;
}
