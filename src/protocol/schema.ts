/**
 * Message schemas as values: what Kafka's message JSON says, in TypeScript.
 *
 * The order of an object literal is the order on the wire, versions are Kafka's spec strings, and
 * the TypeScript types of decoded and encodable messages are inferred. `codec.ts` compiles schemas;
 * `messages/` and the record schemas of other layers declare them; a test compares each of them
 * with the JSON files inside Apache Kafka's jars.
 */
import { Fault } from '../base/assert.ts';
import { type Uuid, ZERO_UUID } from '../base/uuid.ts';

/** An inclusive range of versions; empty when `min > max`. */
export interface VersionRange {
  readonly min: number;
  readonly max: number;
}

/** The end of an open range such as `3+`. */
export const NO_MAX_VERSION = 0x7fff;

/** Parses `3+`, `1-4`, `7` or `none`. */
export function parseVersions(text: string): VersionRange {
  if (text === 'none') return { min: 0, max: -1 };
  const match = /^(\d+)(\+|-(\d+))?$/.exec(text);
  if (match === null) throw new Fault(`not a version range: ${text}`);
  const min = Number(match[1]);
  if (match[2] === undefined) return { min, max: min };
  return { min, max: match[3] === undefined ? NO_MAX_VERSION : Number(match[3]) };
}

/** Whether `version` lies in `range`. */
export function inVersions(range: VersionRange, version: number): boolean {
  return version >= range.min && version <= range.max;
}

/** Wire types without parts of their own. */
export type PrimitiveKind =
  | 'bool'
  | 'int8'
  | 'int16'
  | 'uint16'
  | 'int32'
  | 'uint32'
  | 'int64'
  | 'int64Exact'
  | 'float64'
  | 'uuid'
  | 'string'
  | 'bytes'
  | 'records';

/** A tagged field that the schema does not know: kept when decoding, written back. */
export interface UnknownTag {
  readonly tag: number;
  readonly bytes: Uint8Array;
}

/** A field without its TypeScript types, as codec and tests see it. */
export interface FieldSpec {
  readonly kind: PrimitiveKind | 'struct' | 'array';
  readonly versions: VersionRange;
  readonly nullableVersions: VersionRange;
  readonly tag: number | undefined;
  readonly taggedVersions: VersionRange;
  /** Undefined only for a struct, whose default is all of its fields' defaults. */
  readonly defaultValue: unknown;
  readonly hasExplicitDefault: boolean;
  /** Dropped silently, instead of refused, in versions that lack the field. */
  readonly ignorable: boolean;
  /** The element of an array of primitives. */
  readonly element: PrimitiveKind | undefined;
  /** The fields of a struct, or of an array's elements. */
  readonly fields: Readonly<Record<string, FieldSpec>> | undefined;
}

declare const types: unique symbol;

/** A field: decoded as `D`, encodable from `E`, present in versions `V`, omissible if `O`. */
export interface Field<D, E, V extends string, O extends boolean> extends FieldSpec {
  readonly [types]?: { decoded: D; encodable: E; versions: V; optional: O };
}

/** The fields of a struct or message, in wire order. */
export type Fields = Readonly<Record<string, Field<unknown, unknown, string, boolean>>>;

type TypesOf<F> =
  F extends Field<infer D, infer E, infer V, infer O>
    ? { decoded: D; encodable: E; versions: V; optional: O }
    : never;

/** What decoding gives: every field, absent ones with their default. */
export type DecodedFields<F extends Fields> = {
  [K in keyof F]: TypesOf<F[K]>['decoded'];
} & { unknownTags?: readonly UnknownTag[] };

type OptionalKeys<F extends Fields, V extends string> = {
  [K in keyof F]: TypesOf<F[K]>['optional'] extends true
    ? K
    : TypesOf<F[K]>['versions'] extends V
      ? never
      : K;
}[keyof F];

/**
 * What encoding takes. Omissible: fields with a default, ignorable or tagged ones, and those that
 * not all versions (`V`) of what surrounds them have.
 */
export type EncodableFields<F extends Fields, V extends string> = {
  readonly [K in Exclude<keyof F, OptionalKeys<F, V>>]: TypesOf<F[K]>['encodable'];
} & {
  readonly [K in OptionalKeys<F, V>]?: TypesOf<F[K]>['encodable'] | undefined;
} & { readonly unknownTags?: readonly UnknownTag[] | undefined };

interface Options<T> {
  readonly default?: T;
  readonly ignorable?: true;
}

type NoOptions = Record<never, never>;

type IsOptional<O> = O extends { default: unknown } | { ignorable: true } ? true : false;

/** Makes fields of one primitive type; itself stands for the element type in {@link array}. */
export interface Primitive<D, E> {
  <const V extends string, const O extends Options<D> = NoOptions>(
    versions: V,
    options?: O,
  ): Field<D, E, V, IsOptional<O>>;
  readonly kind: PrimitiveKind;
  readonly [types]?: { decoded: D; encodable: E };
}

const NEVER = parseVersions('none');
const EMPTY_BYTES = new Uint8Array(0);

function fieldSpec(
  kind: FieldSpec['kind'],
  versions: string,
  implicitDefault: unknown,
  options: Options<unknown> | undefined,
): FieldSpec {
  const hasExplicitDefault = options !== undefined && 'default' in options;
  return {
    kind,
    versions: parseVersions(versions),
    nullableVersions: NEVER,
    tag: undefined,
    taggedVersions: NEVER,
    defaultValue: hasExplicitDefault ? options.default : implicitDefault,
    hasExplicitDefault,
    ignorable: options?.ignorable === true,
    element: undefined,
    fields: undefined,
  };
}

function primitive<D, E = D>(kind: PrimitiveKind, implicitDefault: D | null): Primitive<D, E> {
  const make = (versions: string, options?: Options<D>): FieldSpec =>
    fieldSpec(kind, versions, implicitDefault, options);
  return Object.assign(make, { kind }) as Primitive<D, E>;
}

/** One byte, 0 or 1. */
export const bool = primitive<boolean>('bool', false);
/** Signed 8 bits. */
export const int8 = primitive<number>('int8', 0);
/** Signed 16 bits. */
export const int16 = primitive<number>('int16', 0);
/** Unsigned 16 bits. */
export const uint16 = primitive<number>('uint16', 0);
/** Signed 32 bits. */
export const int32 = primitive<number>('int32', 0);
/** Unsigned 32 bits. */
export const uint32 = primitive<number>('uint32', 0);
/** Signed 64 bits as a number; values beyond ±2^53 are malformed. */
export const int64 = primitive<number>('int64', 0);
/** Signed 64 bits as a bigint, where the full range is legal. */
export const int64Exact = primitive<bigint>('int64Exact', 0n);
/** IEEE 754 double. */
export const float64 = primitive<number>('float64', 0);
/** 128 bits. */
export const uuid = primitive<Uuid>('uuid', ZERO_UUID);
/** UTF-8, at most 32767 bytes. */
export const string = primitive<string>('string', '');
/** Opaque bytes: a view of the input when decoded. */
export const bytes = primitive<Uint8Array>('bytes', EMPTY_BYTES);
/** Record batches: a view of the input when decoded, sent by reference when encoded. */
export const records = primitive<Uint8Array, Uint8Array | readonly Uint8Array[]>('records', null);

/** A struct; its default has every field at its own default. */
export function struct<
  const V extends string,
  const F extends Fields,
  const O extends { readonly ignorable?: true } = NoOptions,
>(
  versions: V,
  fields: F,
  options?: O,
): Field<DecodedFields<F>, EncodableFields<F, V>, V, IsOptional<O>> {
  return { ...fieldSpec('struct', versions, undefined, options), fields };
}

/** An array of primitives: `array('0+', int32)`. */
export function array<
  D,
  E,
  const V extends string,
  const O extends { readonly ignorable?: true } = NoOptions,
>(versions: V, element: Primitive<D, E>, options?: O): Field<D[], readonly E[], V, IsOptional<O>>;
/** An array of structs: `array('0+', { name: string('0+') })`. */
export function array<
  const F extends Fields,
  const V extends string,
  const O extends { readonly ignorable?: true } = NoOptions,
>(
  versions: V,
  fields: F,
  options?: O,
): Field<DecodedFields<F>[], readonly EncodableFields<F, V>[], V, IsOptional<O>>;
export function array(
  versions: string,
  of: Primitive<unknown, unknown> | Fields,
  options?: { readonly ignorable?: true },
): FieldSpec {
  const spec = fieldSpec('array', versions, [], options);
  if (typeof of === 'function') return { ...spec, element: (of as { kind: PrimitiveKind }).kind };
  return { ...spec, fields: of as Fields };
}

/** The same field, null allowed in `nullableVersions`; `{ default: null }` makes it the default. */
export function nullable<
  D,
  E,
  V extends string,
  O extends boolean,
  const N extends { readonly default?: null } = NoOptions,
>(
  field: Field<D, E, V, O>,
  nullableVersions: string,
  options?: N,
): Field<D | null, E | null, V, N extends { default: null } ? true : O> {
  const spec: FieldSpec = { ...field, nullableVersions: parseVersions(nullableVersions) };
  if (options === undefined || !('default' in options)) return spec;
  return { ...spec, defaultValue: null, hasExplicitDefault: true };
}

/** The same field as tagged field `tag` in `taggedVersions`, left out while it has its default. */
export function tagged<D, E, V extends string>(
  field: Field<D, E, V, boolean>,
  tag: number,
  taggedVersions: string,
): Field<D, E, V, true> {
  return { ...(field as FieldSpec), tag, taggedVersions: parseVersions(taggedVersions) };
}

/** What a schema describes; requests and responses share an API key, records have a type. */
export type MessageType =
  | 'request'
  | 'response'
  | 'data'
  | 'metadata'
  | 'coordinator-key'
  | 'coordinator-value';

interface MessageDeclaration<F extends Fields> {
  /** API key, or the record type of a metadata or coordinator record; data has none. */
  readonly apiKey?: number;
  readonly name: string;
  readonly type: MessageType;
  readonly validVersions: string;
  readonly flexibleVersions: string;
  readonly latestVersionUnstable?: boolean;
  readonly fields: F;
}

/** A message schema. */
export interface Message<F extends Fields = Fields> {
  readonly apiKey: number | undefined;
  readonly name: string;
  readonly type: MessageType;
  readonly versions: VersionRange;
  readonly flexibleVersions: VersionRange;
  readonly latestVersionUnstable: boolean;
  readonly fields: F;
}

/** The type that decoding a message gives. */
export type MessageOf<M> = M extends Message<infer F> ? DecodedFields<F> : never;
/** The type that encoding a message takes. */
export type EncodableOf<M> = M extends Message<infer F> ? EncodableFields<F, '0+'> : never;

/** Declares a message. */
export function message<const F extends Fields>(declaration: MessageDeclaration<F>): Message<F> {
  return {
    apiKey: declaration.apiKey,
    name: declaration.name,
    type: declaration.type,
    versions: parseVersions(declaration.validVersions),
    flexibleVersions: parseVersions(declaration.flexibleVersions),
    latestVersionUnstable: declaration.latestVersionUnstable === true,
    fields: declaration.fields,
  };
}
