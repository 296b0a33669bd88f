/**
 * Fetches Apache Kafka once and says how to start its programs.
 *
 * - `kafkaJars` copies the dependencies of `pom.xml` into `.cache/kafka/<version>/libs`, for the
 *   version that pom.xml names or another of KAFKA_VERSIONS; TWINLOG_KAFKA_LIBS names a directory
 *   to use instead of the former. Clients and tools are always of pom.xml's version.
 * - Clusters that do not ask for a version have the one that TWINLOG_KAFKA names, else pom.xml's.
 * - Without java or mvn it returns undefined: callers skip, loudly (`interopSkipReason`); with
 *   CI=true that is a failure instead.
 * - `javaArguments` uses the AppCDS archive beside the jars when `app-cds.ts` has made one.
 */
import { existsSync, readdirSync, readFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { buildOnce, CACHE } from './cache.ts';
import { isInstalled, runOrThrow } from './processes.ts';

const POM = join(import.meta.dirname, 'pom.xml');

/** Versions that can be had; true: with Kafka Connect. */
const KAFKA_VERSIONS = { '4.1.2': true, '4.2.0': true, '4.3.1': true, '4.4.0': false } as const;

/** A version of Apache Kafka that tests may ask for by name; the default is pom.xml's. */
export type KafkaVersion = keyof typeof KAFKA_VERSIONS;

/** The Apache Kafka version that pom.xml names. */
export function kafkaVersion(): string {
  const version = /<kafka\.version>([^<]+)</.exec(readFileSync(POM, 'utf8'))?.[1];
  if (version === undefined) throw new Error('pom.xml has no kafka.version');
  return version;
}

function namedVersion(): KafkaVersion | undefined {
  const name = process.env.TWINLOG_KAFKA;
  if (name === undefined || name in KAFKA_VERSIONS) return name as KafkaVersion | undefined;
  const known = Object.keys(KAFKA_VERSIONS).join(', ');
  throw new Error(`TWINLOG_KAFKA is '${name}', and not one of ${known}`);
}

/** The version of all clusters that ask for none, if TWINLOG_KAFKA names it: another pass. */
export const namedTarget: KafkaVersion | undefined = namedVersion();

/** The version of a cluster that asks for none. */
export function clusterVersion(): string {
  return namedTarget ?? kafkaVersion();
}

/** Why a test of a version of its own is left out of a pass against another one, else false. */
export function otherPassReason(): string | false {
  return namedTarget !== undefined && 'names its version itself: it is part of the first pass';
}

async function fetchJars(version: string): Promise<string | undefined> {
  const given = version === kafkaVersion() ? process.env.TWINLOG_KAFKA_LIBS : undefined;
  if (!(await isInstalled('java', '-version'))) return undefined;
  if (given !== undefined) return given;
  const libs = join(CACHE, 'kafka', version, 'libs');
  if (existsSync(libs)) return libs;
  if (!(await isInstalled('mvn'))) return undefined;
  const hasConnect = KAFKA_VERSIONS[version as KafkaVersion] !== false;
  // Connect's jars of some versions cannot be resolved; no broker needs them.
  const profiles = hasConnect ? [] : ['-P', '!connect'];
  return await buildOnce(libs, async (temporary) => {
    const goal = ['dependency:copy-dependencies', `-DoutputDirectory=${temporary}`];
    const wanted = [`-Dkafka.version=${version}`, ...profiles];
    const args = ['-q', '-B', '-f', POM, ...wanted, ...goal];
    await runOrThrow('mvn', args, { timeoutMs: 200_000 });
  });
}

const jars = new Map<string, Promise<string | undefined>>();

/** The directory with Apache Kafka's jars, or undefined when java or mvn is missing. */
export function kafkaJars(version: string = kafkaVersion()): Promise<string | undefined> {
  const known = jars.get(version) ?? fetchJars(version);
  jars.set(version, known);
  return known;
}

/** The same, for code that only runs when the jars are there. */
export async function requireKafkaJars(version?: string): Promise<string> {
  const libs = await kafkaJars(version);
  if (libs === undefined) throw new Error('java and mvn are needed to run Apache Kafka');
  return libs;
}

/**
 * Turns "not available here" into a skip reason: printed so that nobody overlooks it, and thrown
 * when CI=true, where everything must run.
 */
export function unavailable(what: string, reason: string): string {
  const message = `${what} SKIPPED: ${reason}`;
  if (process.env.CI === 'true') throw new Error(`CI=true, but ${message}`);
  process.stderr.write(`\n*** ${message} ***\n\n`);
  return message;
}

/** False when Apache Kafka can run here, else why not (the value for node:test's `skip`). */
export async function interopSkipReason(): Promise<string | false> {
  if ((await kafkaJars()) !== undefined) return false;
  return unavailable('INTEROP TESTS', 'java or mvn is not installed');
}

/** The class path in a fixed order (an AppCDS archive is only valid for the same order). */
export function classPath(libs: string): string {
  const names = readdirSync(libs).filter((name) => name.endsWith('.jar'));
  return names
    .sort()
    .map((name) => join(libs, name))
    .join(':');
}

/** Where the AppCDS archive of these jars lies, once made. */
export function archivePath(libs: string): string {
  return join(dirname(libs), 'interop.jsa');
}

/** How a JVM is to be run: `fast` starts quickly, `benchmark` is as Kafka's own scripts do it. */
export type JvmMode = 'fast' | 'benchmark' | { readonly classList: string };

const FAST = ['-XX:TieredStopAtLevel=1', '-XX:+UseSerialGC', '-XX:-UsePerfData'];
const BENCHMARK = [
  '-server',
  '-XX:+UseG1GC',
  '-XX:MaxGCPauseMillis=20',
  '-XX:InitiatingHeapOccupancyPercent=35',
  '-XX:+ExplicitGCInvokesConcurrent',
];

function modeFlags(mode: JvmMode, libs: string, heap: string): string[] {
  if (mode === 'benchmark') return [`-Xmx${heap}`, ...BENCHMARK];
  const flags = ['-Xms64m', `-Xmx${heap}`, ...FAST];
  if (mode !== 'fast') return [...flags, `-XX:DumpLoadedClassList=${mode.classList}`];
  const archive = archivePath(libs);
  return existsSync(archive) ? [...flags, `-XX:SharedArchiveFile=${archive}`] : flags;
}

/** Options of {@link javaArguments}. */
export interface JavaOptions {
  readonly mode?: JvmMode;
  /** Heap, as in -Xmx; default 256m. */
  readonly heap?: string;
  /** More jars, after Kafka's. */
  readonly extraJars?: readonly string[];
  /** -D system properties. */
  readonly system?: Readonly<Record<string, string>>;
}

/** The arguments of `java` that run `mainClass` on Kafka's class path. */
export function javaArguments(
  libs: string,
  mainClass: string,
  args: readonly string[],
  options: JavaOptions = {},
): string[] {
  const logLevel = process.env.TWINLOG_INTEROP_LOG ?? 'warn';
  const system = { 'org.slf4j.simpleLogger.defaultLogLevel': logLevel, ...options.system };
  return [
    ...modeFlags(options.mode ?? 'fast', libs, options.heap ?? '256m'),
    '-Dorg.slf4j.simpleLogger.showDateTime=true',
    '-Dlog4j2.disableJmx=true',
    ...Object.entries(system).map(([key, value]) => `-D${key}=${value}`),
    '-cp',
    [classPath(libs), ...(options.extraJars ?? [])].join(':'),
    mainClass,
    ...args,
  ];
}
