/**
 * A second, slow reading of the protocol guide: the compiled codecs must agree with it.
 *
 * It shares the primitives of base/bytes.ts with the product, and nothing of codec.ts.
 */
import { ByteReader, ByteWriter, MalformedBytes } from '../../src/base/bytes.ts';
import {
  type FieldSpec,
  inVersions,
  type Message,
  type PrimitiveKind,
  type UnknownTag,
} from '../../src/protocol/schema.ts';

export type Value = Record<string, unknown>;
type Specs = Readonly<Record<string, FieldSpec>>;

function defaultOf(field: FieldSpec): unknown {
  if (field.kind === 'array' && field.defaultValue !== null) return [];
  if (field.kind !== 'struct' || field.defaultValue === null) return field.defaultValue;
  const fields = Object.entries(field.fields ?? {});
  return Object.fromEntries(fields.map(([name, inner]) => [name, defaultOf(inner)]));
}

function isDefault(field: FieldSpec, value: unknown): boolean {
  if (value === undefined) return true;
  if (value === null || field.defaultValue === null) return value === field.defaultValue;
  if (field.kind === 'array' || field.kind === 'bytes' || field.kind === 'records') {
    return (value as { length: number }).length === 0;
  }
  if (field.kind !== 'struct') return value === field.defaultValue;
  const struct = value as Value;
  if ('unknownTags' in struct) return false;
  return Object.entries(field.fields ?? {}).every(([name, f]) => isDefault(f, struct[name]));
}

/** Reads and writes by walking the schema. */
export class Interpreter {
  readonly #version: number;
  readonly #flexible: boolean;
  readonly #message: Message;

  constructor(message: Message, version: number) {
    this.#message = message;
    this.#version = version;
    this.#flexible = inVersions(message.flexibleVersions, version);
  }

  decode(bytes: Uint8Array): Value {
    return this.#readStruct(new ByteReader(bytes), this.#message.fields);
  }

  encode(value: Value): Uint8Array {
    const writer = new ByteWriter();
    this.#writeStruct(writer, this.#message.fields, value);
    return writer.toBytes();
  }

  #tagged(field: FieldSpec): boolean {
    return this.#flexible && inVersions(field.taggedVersions, this.#version);
  }

  #readStruct(reader: ByteReader, fields: Specs): Value {
    const value: Value = {};
    const tags = new Map<number, [string, FieldSpec]>();
    for (const [name, field] of Object.entries(fields)) {
      value[name] = defaultOf(field);
      if (!inVersions(field.versions, this.#version)) continue;
      if (this.#tagged(field)) tags.set(field.tag as number, [name, field]);
      else value[name] = this.#read(reader, field);
    }
    if (!this.#flexible) return value;
    const unknown: UnknownTag[] = [];
    for (let left = reader.uvarint(); left > 0; left--) {
      const tag = reader.uvarint();
      const size = reader.uvarint();
      const end = reader.position + size;
      const known = tags.get(tag);
      if (known === undefined) unknown.push({ tag, bytes: reader.view(size) });
      else value[known[0]] = this.#read(reader, known[1]);
      if (reader.position !== end) throw new MalformedBytes('tag size', end);
    }
    if (unknown.length > 0) value.unknownTags = unknown;
    return value;
  }

  #read(reader: ByteReader, field: FieldSpec): unknown {
    const value = this.#readNullable(reader, field);
    if (value === null && !inVersions(field.nullableVersions, this.#version)) {
      throw new MalformedBytes('null', reader.position);
    }
    return value;
  }

  #readNullable(reader: ByteReader, field: FieldSpec): unknown {
    if (field.kind === 'struct') {
      const nullable = inVersions(field.nullableVersions, this.#version);
      if (nullable && reader.int8() < 0) return null;
      return this.#readStruct(reader, field.fields ?? {});
    }
    if (field.kind !== 'array') return this.#readPrimitive(reader, field.kind);
    const length = this.#flexible ? reader.uvarint() - 1 : reader.int32();
    if (length < 0) return null;
    const values: unknown[] = [];
    for (let i = 0; i < length; i++) {
      values.push(
        field.element === undefined
          ? this.#readStruct(reader, field.fields ?? {})
          : this.#readElement(reader, field.element),
      );
    }
    return values;
  }

  #readElement(reader: ByteReader, kind: PrimitiveKind): unknown {
    const value = this.#readPrimitive(reader, kind);
    if (value === null) throw new MalformedBytes('null element', reader.position);
    return value;
  }

  #readPrimitive(reader: ByteReader, kind: PrimitiveKind): unknown {
    if (kind === 'string') {
      return this.#flexible ? reader.nullableCompactString() : reader.nullableString();
    }
    if (kind === 'bytes' || kind === 'records') {
      return this.#flexible ? reader.nullableCompactByteField() : reader.nullableByteField();
    }
    return reader[kind]();
  }

  #writeStruct(writer: ByteWriter, fields: Specs, value: Value): void {
    const tags: UnknownTag[] = [...((value.unknownTags as UnknownTag[]) ?? [])];
    for (const [name, field] of Object.entries(fields)) {
      const given = value[name];
      if (!inVersions(field.versions, this.#version)) {
        if (!field.ignorable && !isDefault(field, given)) throw new Error(`${name} not in version`);
      } else if (!this.#tagged(field)) {
        this.#write(writer, field, given === undefined ? defaultOf(field) : given);
      } else if (!isDefault(field, given)) {
        const inner = new ByteWriter();
        this.#write(inner, field, given);
        tags.push({ tag: field.tag as number, bytes: inner.toBytes() });
      }
    }
    if (!this.#flexible) return;
    writer.uvarint(tags.length);
    for (const { tag, bytes } of tags.sort((a, b) => a.tag - b.tag)) {
      writer.uvarint(tag);
      writer.uvarint(bytes.length);
      writer.raw(bytes);
    }
  }

  #write(writer: ByteWriter, field: FieldSpec, value: unknown): void {
    const nullable = inVersions(field.nullableVersions, this.#version);
    if (value === null && !nullable) throw new Error('null');
    if (field.kind === 'struct') {
      if (nullable) writer.int8(value === null ? -1 : 1);
      if (value !== null) this.#writeStruct(writer, field.fields ?? {}, value as Value);
      return;
    }
    if (field.kind !== 'array') {
      this.#writePrimitive(writer, field.kind, value);
      return;
    }
    const values = value as unknown[] | null;
    const length = values?.length ?? -1;
    if (this.#flexible) writer.uvarint(length + 1);
    else writer.int32(length);
    for (const each of values ?? []) {
      if (field.element !== undefined) this.#writePrimitive(writer, field.element, each);
      else this.#writeStruct(writer, field.fields ?? {}, each as Value);
    }
  }

  #writePrimitive(writer: ByteWriter, kind: PrimitiveKind, value: unknown): void {
    if (kind === 'string') {
      if (this.#flexible) writer.nullableCompactString(value as string | null);
      else writer.nullableString(value as string | null);
    } else if (kind === 'bytes' || kind === 'records') {
      const bytes = Array.isArray(value) ? Buffer.concat(value) : (value as Uint8Array | null);
      if (this.#flexible) writer.nullableCompactByteField(bytes);
      else writer.nullableByteField(bytes);
    } else {
      (writer[kind] as (value: unknown) => void).call(writer, value);
    }
  }
}
