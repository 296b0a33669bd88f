/** Random values of a message at a version, in the form that decoding gives. */
import fc from 'fast-check';
import { uuidFromBytes } from '../../src/base/uuid.ts';
import {
  type FieldSpec,
  inVersions,
  type Message,
  type PrimitiveKind,
} from '../../src/protocol/schema.ts';
import type { Value } from './interpreter.ts';

const primitives: Readonly<Record<PrimitiveKind, fc.Arbitrary<unknown>>> = {
  bool: fc.boolean(),
  int8: fc.integer({ min: -128, max: 127 }),
  int16: fc.integer({ min: -32768, max: 32767 }),
  uint16: fc.nat(65535),
  int32: fc.integer(),
  uint32: fc.nat(0xffffffff),
  int64: fc.maxSafeInteger(),
  int64Exact: fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
  float64: fc.double(),
  uuid: fc.uint8Array({ minLength: 16, maxLength: 16 }).map((bytes) => uuidFromBytes(bytes)),
  string: fc.string({ unit: 'binary', maxLength: 12 }),
  bytes: fc.uint8Array({ maxLength: 12 }),
  records: fc.uint8Array({ maxLength: 1500 }),
};

const unknownTags = fc.option(
  fc
    .uniqueArray(fc.integer({ min: 10_000, max: 2 ** 31 }), { minLength: 1, maxLength: 2 })
    .chain((tags) =>
      fc.tuple(
        ...tags
          .sort((a, b) => a - b)
          .map((tag) =>
            fc.record(
              { tag: fc.constant(tag), bytes: fc.uint8Array({ maxLength: 9 }) },
              { noNullPrototype: true },
            ),
          ),
      ),
    ),
  { nil: undefined, freq: 3 },
);

function arbitraryField(
  field: FieldSpec,
  version: number,
  flexible: boolean,
): fc.Arbitrary<unknown> {
  const present = inVersions(field.versions, version);
  if (field.kind === 'struct') {
    const full = arbitraryFields(field.fields ?? {}, version, flexible, present);
    if (field.defaultValue === null && !present) return fc.constant(null);
    return inVersions(field.nullableVersions, version) ? fc.option(full) : full;
  }
  if (!present)
    return fc.constant(field.kind === 'array' ? field.defaultValue && [] : field.defaultValue);
  let arbitrary: fc.Arbitrary<unknown>;
  if (field.kind !== 'array') arbitrary = primitives[field.kind];
  else {
    const element =
      field.element === undefined
        ? arbitraryFields(field.fields ?? {}, version, flexible, true)
        : primitives[field.element];
    arbitrary = fc.array(element, { maxLength: 3 });
  }
  const choices = [{ arbitrary, weight: 4 }];
  if (inVersions(field.nullableVersions, version)) {
    choices.push({ arbitrary: fc.constant(null), weight: 1 });
  }
  const { kind, defaultValue } = field;
  if (kind !== 'array' && kind !== 'bytes' && kind !== 'records' && defaultValue !== null) {
    choices.push({ arbitrary: fc.constant(defaultValue), weight: 1 });
  }
  return fc.oneof(...choices);
}

function arbitraryFields(
  fields: Readonly<Record<string, FieldSpec>>,
  version: number,
  flexible: boolean,
  present: boolean,
): fc.Arbitrary<Value> {
  const model = Object.fromEntries(
    Object.entries(fields).map(([name, field]) => [
      name,
      arbitraryField(
        present ? field : { ...field, versions: { min: 0, max: -1 } },
        version,
        flexible,
      ),
    ]),
  );
  const value = fc.record(model, { noNullPrototype: true }) as fc.Arbitrary<Value>;
  if (!flexible || !present) return value;
  return fc.tuple(value, unknownTags).map(([v, tags]) => (tags ? { ...v, unknownTags: tags } : v));
}

/** Values of `message` that encode and decode to themselves at `version`. */
export function arbitraryMessage(message: Message, version: number): fc.Arbitrary<Value> {
  const flexible = inVersions(message.flexibleVersions, version);
  return arbitraryFields(message.fields, version, flexible, true);
}
