/**
 * Compiles a message schema at one version into a decoder and an encoder, once.
 *
 * The code is generated from our own constants only (names and numbers of schemas in this
 * repository), never from input; `new Function` makes it as fast as code written by hand. A slow
 * interpreter in the tests must agree with it for every schema and version. Invariants:
 * - Decoding throws {@link MalformedBytes} and nothing else; bytes behind the last field are left
 *   unread, as Kafka does, so that a newer writer's additions do no harm.
 * - Fields absent from a version decode as their default, and encode only if they have it or are
 *   ignorable; else {@link UnencodableValue}.
 * - Records and bytes are views of the input; large ones leave the encoder by reference.
 */
import { Fault } from '../base/assert.ts';
import { ByteReader, ByteWriter, MalformedBytes, UnencodableValue } from '../base/bytes.ts';
import {
  type EncodableOf,
  type FieldSpec,
  type Fields,
  inVersions,
  type Message,
  type MessageOf,
  type PrimitiveKind,
  type UnknownTag,
} from './schema.ts';

/** Reads and writes one message at one version. */
export interface Codec<M extends Message> {
  readonly message: M;
  readonly version: number;
  /** Whether this version has compact lengths and tagged fields. */
  readonly flexible: boolean;
  read(reader: ByteReader): MessageOf<M>;
  write(writer: ByteWriter, value: EncodableOf<M>): void;
  /** `read`, from a reader or from the front of bytes. */
  decode(input: Uint8Array | ByteReader): MessageOf<M>;
  /** `write` as chunks in order; large byte fields are not copied. */
  encode(value: EncodableOf<M>): Uint8Array[];
  /** `write` as one piece. */
  encodeToBytes(value: EncodableOf<M>): Uint8Array;
}

const READ_METHOD: Readonly<Record<PrimitiveKind, string>> = {
  bool: 'bool',
  int8: 'int8',
  int16: 'int16',
  uint16: 'uint16',
  int32: 'int32',
  uint32: 'uint32',
  int64: 'int64',
  int64Exact: 'int64Exact',
  float64: 'float64',
  uuid: 'uuid',
  string: 'string',
  bytes: 'byteField',
  records: 'byteField',
};

const FIXED_SIZE: Partial<Readonly<Record<FieldSpec['kind'], number>>> = {
  bool: 1,
  int8: 1,
  int16: 2,
  uint16: 2,
  int32: 4,
  uint32: 4,
  int64: 8,
  int64Exact: 8,
  float64: 8,
  uuid: 16,
};

function isVariable(kind: PrimitiveKind): boolean {
  return kind === 'string' || kind === 'bytes' || kind === 'records';
}

/** The reader's or writer's method for a primitive. */
function method(kind: PrimitiveKind, nullable: boolean, flexible: boolean): string {
  const name = READ_METHOD[kind];
  if (!isVariable(kind)) return name;
  const capital = name.charAt(0).toUpperCase() + name.slice(1);
  if (nullable) return flexible ? `nullableCompact${capital}` : `nullable${capital}`;
  return flexible ? `compact${capital}` : name;
}

type Reads = (reader: ByteReader) => unknown;
type Writes = (writer: ByteWriter, value: unknown) => void;
type Tests = (value: unknown) => boolean;

function mustBePresent(value: unknown, path: string): void {
  if (value === null) throw new UnencodableValue(`${path} must not be null`);
}

function malformedNull(reader: ByteReader, path: string): never {
  throw new MalformedBytes(`null ${path} where none is allowed`, reader.position);
}

function malformedTag(tag: number, end: number): never {
  throw new MalformedBytes(`value of tag ${tag} does not fill its size`, end);
}

function countUnknownTags(
  tags: readonly UnknownTag[],
  known: ReadonlySet<number>,
  path: string,
): number {
  for (const { tag } of tags) {
    if (known.has(tag)) throw new UnencodableValue(`${path} knows tag ${tag}: not an unknown tag`);
  }
  return tags.length;
}

function refuse(path: string, version: number): never {
  throw new UnencodableValue(`${path} is not in version ${version}, and is not its default`);
}

/** Compares with a default that is not a struct. */
function equalsDefault(value: unknown, defaultValue: unknown): boolean {
  if (value === undefined || value === defaultValue) return true;
  if (value === null || defaultValue === null || typeof value !== 'object') return false;
  // Empty arrays and bytes are the only object defaults.
  return (value as { length: number }).length === 0;
}

/** Writes the unknown tags of a value in [from, to): tags leave in ascending order. */
function writeUnknownTags(
  writer: ByteWriter,
  tags: readonly UnknownTag[] | undefined,
  from: number,
  to: number,
): void {
  if (tags === undefined) return;
  const chosen = tags.filter((each) => each.tag >= from && each.tag < to);
  for (const { tag, bytes } of chosen.sort((a, b) => a.tag - b.tag)) {
    writer.uvarint(tag);
    writer.uvarint(bytes.length);
    writer.reference(bytes);
  }
}

function writeRecords(writer: ByteWriter, value: unknown, flexible: boolean): void {
  if (value === null) {
    if (flexible) writer.uvarint(0);
    else writer.int32(-1);
    return;
  }
  const chunks = value instanceof Uint8Array ? [value] : (value as readonly Uint8Array[]);
  let length = 0;
  for (const chunk of chunks) length += chunk.length;
  if (flexible) writer.uvarint(length + 1);
  else writer.int32(length);
  for (const chunk of chunks) writer.reference(chunk);
}

/** A tagged value into a buffer of its own, as its size comes first. */
function writeTagged(writer: ByteWriter, tag: number, write: Writes, value: unknown): void {
  const inner = new ByteWriter();
  write(inner, value);
  writer.uvarint(tag);
  writer.uvarint(inner.length);
  for (const chunk of inner.chunks()) writer.reference(chunk);
}

function compareTagged(a: readonly [string, FieldSpec], b: readonly [string, FieldSpec]): number {
  return (a[1].tag as number) - (b[1].tag as number);
}

/** Generates code for one message version; `constants` are what the code refers to by index. */
class Compiler {
  readonly #version: number;
  readonly #flexible: boolean;
  readonly #constants: unknown[] = [];

  constructor(version: number, flexible: boolean) {
    this.#version = version;
    this.#flexible = flexible;
  }

  #constant(value: unknown): string {
    this.#constants.push(value);
    return `c${this.#constants.length - 1}`;
  }

  #finish(source: string): unknown {
    const used = new Set(source.match(/\bc\d+\b/g));
    const constants = [...used].map((name) => `const ${name} = c[${name.slice(1)}];\n`).join('');
    return new Function('c', `'use strict';\n${constants}return ${source};`)(this.#constants);
  }

  /** The function itself, put among the constants, so that nested code can call it. */
  #named(source: string): string {
    return this.#constant(this.#finish(source));
  }

  #isTagged(field: FieldSpec): boolean {
    return this.#flexible && inVersions(field.taggedVersions, this.#version);
  }

  #split(fields: Readonly<Record<string, FieldSpec>>): {
    plain: (readonly [string, FieldSpec])[];
    tags: (readonly [string, FieldSpec])[];
    absent: (readonly [string, FieldSpec])[];
  } {
    const entries = Object.entries(fields);
    const has = (field: FieldSpec) => inVersions(field.versions, this.#version);
    return {
      plain: entries.filter(([, field]) => has(field) && !this.#isTagged(field)),
      tags: entries.filter(([, f]) => has(f) && this.#isTagged(f)).sort(compareTagged),
      absent: entries.filter(([, field]) => !has(field)),
    };
  }

  #isNullable(field: FieldSpec): boolean {
    return inVersions(field.nullableVersions, this.#version);
  }

  /** The fewest bytes a value takes: what bounds array lengths before anything is allocated. */
  #minimumSize(field: FieldSpec): number {
    const fixed = FIXED_SIZE[field.kind];
    if (fixed !== undefined) return fixed;
    if (field.kind === 'struct') {
      return this.#isNullable(field) ? 1 : this.#minimumStructSize(field.fields ?? {});
    }
    if (this.#flexible) return 1;
    return field.kind === 'string' ? 2 : 4;
  }

  #minimumStructSize(fields: Readonly<Record<string, FieldSpec>>): number {
    let size = this.#flexible ? 1 : 0;
    for (const [, field] of this.#split(fields).plain) size += this.#minimumSize(field);
    return size;
  }

  /** An expression for a fresh default: arrays and structs are never shared between messages. */
  #default(field: FieldSpec): string {
    if (field.kind === 'array' && field.defaultValue !== null) return '[]';
    if (field.kind !== 'struct' || field.defaultValue === null) {
      return this.#constant(field.defaultValue);
    }
    const parts = Object.entries(field.fields ?? {}).map(
      ([name, inner]) => `${name}: ${this.#default(inner)}`,
    );
    return `{ ${parts.join(', ')} }`;
  }

  /** An expression that reads one present field. */
  #readField(path: string, field: FieldSpec): string {
    const nullable = this.#isNullable(field);
    if (field.kind === 'struct') {
      const read = this.#named(this.#readStruct(path, field.fields ?? {}));
      return nullable ? `(r.int8() < 0 ? null : ${read}(r))` : `${read}(r)`;
    }
    if (field.kind === 'array') return `${this.#named(this.#readArray(path, field))}(r)`;
    return `r.${method(field.kind, nullable, this.#flexible)}()`;
  }

  #readArray(path: string, field: FieldSpec): string {
    const { element, fields } = field;
    let size: number;
    let read: string;
    if (element === undefined) {
      size = this.#minimumStructSize(fields ?? {});
      read = `${this.#named(this.#readStruct(path, fields ?? {}))}(r)`;
    } else {
      size = FIXED_SIZE[element] ?? (this.#flexible ? 1 : element === 'string' ? 2 : 4);
      read = `r.${method(element, false, this.#flexible)}()`;
    }
    if (size === 0) throw new Fault(`${path} v${this.#version}: elements without a byte`);
    const length = this.#flexible ? 'compactArrayLength' : 'arrayLength';
    const none = this.#isNullable(field)
      ? 'return null'
      : `${this.#constant(malformedNull)}(r, '${path}')`;
    return `function (r) {
      const n = r.${length}(${size});
      if (n < 0) ${none};
      const a = [];
      for (let i = 0; i < n; i++) a.push(${read});
      return a;
    }`;
  }

  /** Locals are numbered by the field's place, as field names may be reserved words. */
  #readStruct(path: string, fields: Readonly<Record<string, FieldSpec>>): string {
    const { plain, tags } = this.#split(fields);
    const names = Object.keys(fields);
    const local = (name: string) => `v${names.indexOf(name)}`;
    const lines = plain.map(
      ([name, field]) => `const ${local(name)} = ${this.#readField(`${path}.${name}`, field)};`,
    );
    for (const [name, field] of tags) lines.push(`let ${local(name)} = ${this.#default(field)};`);
    if (this.#flexible) lines.push(this.#readTags(path, tags, local));
    const parts = names.map((name) => {
      const field = fields[name] as FieldSpec;
      const present = inVersions(field.versions, this.#version);
      return `${name}: ${present ? local(name) : this.#default(field)}`;
    });
    const object = `{ ${parts.join(', ')} }`;
    return this.#flexible
      ? `function (r) {\n${lines.join('\n')}\nconst o = ${object};
        if (u !== undefined) o.unknownTags = u;\nreturn o;\n}`
      : `function (r) {\n${lines.join('\n')}\nreturn ${object};\n}`;
  }

  #readTags(
    path: string,
    tags: readonly (readonly [string, FieldSpec])[],
    local: (name: string) => string,
  ): string {
    const cases = tags.map(
      ([name, field]) =>
        `case ${field.tag}: ${local(name)} = ${this.#readField(`${path}.${name}`, field)}; break;`,
    );
    return `let u;
      for (let n = r.uvarint(); n > 0; n--) {
        const tag = r.uvarint(), size = r.uvarint(), end = r.position + size;
        switch (tag) {
          ${cases.join('\n')}
          default: (u ??= []).push({ tag, bytes: r.view(size, 'tagged field') });
        }
        if (r.position !== end) ${this.#constant(malformedTag)}(tag, end);
      }`;
  }

  /** Statements that write `x`, which is not undefined. */
  #writeField(path: string, field: FieldSpec, x: string): string {
    const nullable = this.#isNullable(field);
    const must = nullable ? '' : `${this.#constant(mustBePresent)}(${x}, '${path}');`;
    if (field.kind === 'struct') {
      const write = this.#named(this.#writeStruct(path, field.fields ?? {}));
      if (!nullable) return `${must} ${write}(w, ${x});`;
      return `if (${x} === null) w.int8(-1); else { w.int8(1); ${write}(w, ${x}); }`;
    }
    if (field.kind === 'array') {
      return `${must} ${this.#named(this.#writeArray(path, field))}(w, ${x});`;
    }
    if (field.kind === 'records') {
      return `${must} ${this.#constant(writeRecords)}(w, ${x}, ${this.#flexible});`;
    }
    const check = isVariable(field.kind) ? must : '';
    return `${check} w.${method(field.kind, nullable, this.#flexible)}(${x});`;
  }

  #writeArray(path: string, field: FieldSpec): string {
    const { element, fields } = field;
    const write =
      element === undefined
        ? `${this.#named(this.#writeStruct(path, fields ?? {}))}(w, a[i]);`
        : `w.${method(element, false, this.#flexible)}(a[i]);`;
    const length = this.#flexible ? 'compactArrayLength' : 'arrayLength';
    return `function (w, a) {
      if (a === null) { w.${length}(-1); return; }
      const n = a.length;
      w.${length}(n);
      for (let i = 0; i < n; i++) ${write}
    }`;
  }

  #writeStruct(path: string, fields: Readonly<Record<string, FieldSpec>>): string {
    const { plain, tags, absent } = this.#split(fields);
    const lines: string[] = [];
    for (const [name, field] of absent) {
      if (field.ignorable) continue;
      const check = `!${this.#constant(this.#defaultTest(field))}(o.${name})`;
      const act = `${this.#constant(refuse)}('${path}.${name}', ${this.#version});`;
      lines.push(`if (o.${name} !== undefined && ${check}) ${act}`);
    }
    for (const [name, field] of plain) {
      lines.push(`x = o.${name}; if (x === undefined) x = ${this.#default(field)};`);
      lines.push(this.#writeField(`${path}.${name}`, field, 'x'));
    }
    if (this.#flexible) lines.push(this.#writeTags(path, tags));
    return `function (w, o) {\nlet x;\n${lines.join('\n')}\n}`;
  }

  #writeTags(path: string, tags: readonly (readonly [string, FieldSpec])[]): string {
    const count: string[] = [];
    const writes: string[] = [];
    const unknown = this.#constant(writeUnknownTags);
    let from = 0;
    for (const [name, field] of tags) {
      const tag = field.tag as number;
      const inner = this.#named(
        `function (w, x) { ${this.#writeField(`${path}.${name}`, field, 'x')} }`,
      );
      const has = `t${tag}`;
      count.push(
        `const ${has} = !${this.#constant(this.#defaultTest(field))}(o.${name}); if (${has}) n++;`,
      );
      writes.push(`if (u !== undefined) ${unknown}(w, u, ${from}, ${tag});`);
      writes.push(`if (${has}) ${this.#constant(writeTagged)}(w, ${tag}, ${inner}, o.${name});`);
      from = tag + 1;
    }
    const known = this.#constant(new Set(tags.map(([, field]) => field.tag)));
    return `const u = o.unknownTags;
      let n = u === undefined ? 0 : ${this.#constant(countUnknownTags)}(u, ${known}, '${path}');
      ${count.join('\n')}
      w.uvarint(n);
      ${writes.join('\n')}
      if (u !== undefined) ${unknown}(w, u, ${from}, Infinity);`;
  }

  /** Tells whether a value (or undefined) is the field's default. */
  #defaultTest(field: FieldSpec): Tests {
    const { defaultValue, fields } = field;
    if (field.kind !== 'struct' || defaultValue === null) {
      return (value) => equalsDefault(value, defaultValue);
    }
    const tests = Object.entries(fields ?? {}).map(
      ([name, inner]) => [name, this.#defaultTest(inner)] as const,
    );
    return (value) => {
      if (value === undefined) return true;
      if (value === null) return false;
      const parts = value as Record<string, unknown>;
      return parts.unknownTags === undefined && tests.every(([name, test]) => test(parts[name]));
    };
  }

  reads(name: string, fields: Fields): Reads {
    return this.#finish(this.#readStruct(name, fields)) as Reads;
  }

  writes(name: string, fields: Fields): Writes {
    return this.#finish(this.#writeStruct(name, fields)) as Writes;
  }
}

const compiled = new WeakMap<Message, Codec<Message>[]>();

/** The codec of `schema` at `version`, compiled at its first use. */
export function codec<M extends Message>(schema: M, version: number): Codec<M> {
  let versions = compiled.get(schema);
  if (versions === undefined) {
    versions = [];
    compiled.set(schema, versions);
  }
  let found = versions[version];
  if (found === undefined) {
    found = compile(schema, version) as unknown as Codec<Message>;
    versions[version] = found;
  }
  return found as unknown as Codec<M>;
}

function compile<M extends Message>(schema: M, version: number): Codec<M> {
  if (!inVersions(schema.versions, version)) {
    throw new Fault(`${schema.name} has no version ${version}`);
  }
  const flexible = inVersions(schema.flexibleVersions, version);
  const compiler = new Compiler(version, flexible);
  const read = compiler.reads(schema.name, schema.fields) as (r: ByteReader) => MessageOf<M>;
  const write = compiler.writes(schema.name, schema.fields) as Codec<M>['write'];
  return {
    message: schema,
    version,
    flexible,
    read,
    write,
    decode: (input) => read(input instanceof ByteReader ? input : new ByteReader(input)),
    encode: (value) => {
      const writer = new ByteWriter();
      write(writer, value);
      return writer.chunks();
    },
    encodeToBytes: (value) => {
      const writer = new ByteWriter();
      write(writer, value);
      return writer.toBytes();
    },
  };
}
