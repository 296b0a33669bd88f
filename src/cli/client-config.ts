/**
 * Client settings from a file, as Kafka's own tools take them: how a command connects, and how a
 * mirror shall.
 *
 * Used by every command that talks to a cluster (`--command-config`) and by `mirrors create`
 * (`--source-config`). Settings that have nothing to do with security mean nothing to a command.
 */
import {
  type ConnectionSecurity,
  connectionSecurity,
  SecurityProblem,
  type SettingSource,
} from '../protocol/connection-security.ts';
import { CommandError } from './output.ts';
import { readProperties, readText } from './properties.ts';

/** Calls `read`; what is wrong with settings is told by the name of their file. */
function fromFile<T>(path: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (!(error instanceof SecurityProblem)) throw error;
    throw new CommandError(`${path}: ${error.message}`, 2);
  }
}

function sourceOf(settings: ReadonlyMap<string, string>): SettingSource {
  return {
    value: (name) => settings.get(name),
    readFile: (path) => Buffer.from(readText(path), 'utf8'),
  };
}

/** How the file says that a command connects; undefined: no file, or PLAINTEXT. */
export function commandSecurity(path: string | undefined): ConnectionSecurity | undefined {
  if (path === undefined) return undefined;
  const settings = new Map(readProperties(path));
  return fromFile(path, () => connectionSecurity(sourceOf(settings)));
}

/** How the settings say that a mirror connects. */
export function mirrorSecurity(
  settings: readonly (readonly [string, string])[],
): ConnectionSecurity | undefined {
  return fromFile('mirror settings', () => connectionSecurity(sourceOf(new Map(settings))));
}

/**
 * A mirror's settings from the file; files of certificates and keys that it names become part of
 * the settings, since the brokers that read them are elsewhere.
 */
export function mirrorSettings(path: string | undefined): [string, string][] {
  if (path === undefined) return [];
  const settings = new Map(readProperties(path));
  for (const [location, names] of [
    ['ssl.truststore.location', ['ssl.truststore.certificates']],
    ['ssl.keystore.location', ['ssl.keystore.certificate.chain', 'ssl.keystore.key']],
  ] as const) {
    const file = settings.get(location);
    if (file === undefined) continue;
    const type = settings.get(location.replace('location', 'type')) ?? '';
    if (type.toUpperCase() !== 'PEM') {
      throw new CommandError(`${path}: ${location} must be a PEM file, say so in its type.`, 2);
    }
    for (const name of names) settings.set(name, readText(file));
    settings.delete(location);
  }
  return [...settings];
}
