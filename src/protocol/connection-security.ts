/**
 * How a client connection is secured, from Kafka's own client settings (contract §12).
 *
 * Used for mirrors' sources, for a guest's own cluster and for commands. PEM is the only kind of
 * key and trust store, PLAIN and SCRAM are the SASL mechanisms. Invariant: a problem is told by the
 * name of its setting, never with a value that holds secrets (A6).
 */
import type { TlsClientOptions, TlsIdentity } from '../io/runtime.ts';
import { parseJaas } from './jaas.ts';
import { normalPem } from './pem.ts';

/** Kafka's security protocols by their codes in BrokerRegistration and Metadata records. */
export const securityProtocols = { PLAINTEXT: 0, SSL: 1, SASL_PLAINTEXT: 2, SASL_SSL: 3 } as const;
/** A key of {@link securityProtocols}. */
export type SecurityProtocol = keyof typeof securityProtocols;

/** SASL mechanisms, strongest last. */
export const SASL_MECHANISMS = ['PLAIN', 'SCRAM-SHA-256', 'SCRAM-SHA-512'] as const;
/** One of {@link SASL_MECHANISMS}. */
export type SaslMechanism = (typeof SASL_MECHANISMS)[number];

/** Who a connection says it is, and how it proves that. */
export interface SaslCredentials {
  readonly mechanism: SaslMechanism;
  readonly username: string;
  readonly password: string;
}

/** Absent parts: no TLS, no SASL. */
export interface ConnectionSecurity {
  readonly tls?: TlsClientOptions | undefined;
  readonly sasl?: SaslCredentials | undefined;
}

/** The code of the security protocol that such connections speak. */
export function protocolCode({ tls, sasl }: ConnectionSecurity = {}): number {
  return (tls === undefined ? 0 : 1) + (sasl === undefined ? 0 : 2);
}

/** A setting that cannot be used; the message is a sentence that names it. */
export class SecurityProblem extends Error {
  override readonly name = 'SecurityProblem';
}

/** Where settings come from. */
export interface SettingSource {
  /** The value of a setting, by the name it has for clients. */
  readonly value: (name: string) => string | undefined;
  /** Reads a file that a setting names; absent: settings may name none. */
  readonly readFile?: ((path: string) => Uint8Array | undefined) | undefined;
}

/** Whether the text is a key of {@link securityProtocols}. */
export function isSecurityProtocol(text: string): text is SecurityProtocol {
  return Object.hasOwn(securityProtocols, text);
}

function isMechanism(text: string): text is SaslMechanism {
  return (SASL_MECHANISMS as readonly string[]).includes(text);
}

function store(source: SettingSource, kind: 'keystore' | 'truststore'): string | undefined {
  const type = source.value(`ssl.${kind}.type`);
  const location = source.value(`ssl.${kind}.location`);
  if (type !== undefined && type.toUpperCase() !== 'PEM') {
    throw new SecurityProblem(`ssl.${kind}.type must be PEM: convert the store.`);
  }
  if (location === undefined) return undefined;
  if (source.readFile === undefined) {
    throw new SecurityProblem(`ssl.${kind}.location cannot be used here: give the PEM itself.`);
  }
  if (type === undefined) throw new SecurityProblem(`ssl.${kind}.type must be PEM.`);
  const bytes = source.readFile(location);
  if (bytes === undefined) {
    throw new SecurityProblem(`ssl.${kind}.location: there is no file ${location}.`);
  }
  return Buffer.from(bytes).toString('utf8');
}

/** The certificates to trust; undefined: those the runtime knows. */
export function trustedCertificates(source: SettingSource): string | undefined {
  const text = source.value('ssl.truststore.certificates') ?? store(source, 'truststore');
  return text === undefined ? undefined : pem('ssl.truststore', text, 'CERTIFICATE');
}

/** The own certificate and key; undefined: none is set. */
export function tlsIdentity(source: SettingSource): TlsIdentity | undefined {
  const file = store(source, 'keystore');
  const chain = source.value('ssl.keystore.certificate.chain') ?? file;
  const key = source.value('ssl.keystore.key') ?? file;
  if (chain === undefined && key === undefined) return undefined;
  if (chain === undefined || key === undefined) {
    throw new SecurityProblem(
      'ssl.keystore.certificate.chain and ssl.keystore.key must be set together.',
    );
  }
  return {
    certificateChain: pem('ssl.keystore.certificate.chain', chain, 'CERTIFICATE'),
    key: pem('ssl.keystore.key', key, 'PRIVATE KEY'),
    keyPassword: source.value('ssl.key.password'),
  };
}

function pem(name: string, text: string, label: string): string {
  const normal = normalPem(text);
  if (normal.includes(label)) return normal;
  throw new SecurityProblem(`${name} holds no PEM block of a ${label.toLowerCase()}.`);
}

function tlsOf(source: SettingSource): TlsClientOptions {
  const algorithm = source.value('ssl.endpoint.identification.algorithm') ?? 'https';
  if (!/^(https)?$/i.test(algorithm.trim())) {
    throw new SecurityProblem('ssl.endpoint.identification.algorithm must be https or empty.');
  }
  return {
    trusted: trustedCertificates(source),
    identity: tlsIdentity(source),
    checkHostName: algorithm.trim() !== '',
  };
}

function saslOf(source: SettingSource): SaslCredentials {
  const mechanism = source.value('sasl.mechanism') ?? '';
  if (!isMechanism(mechanism)) {
    const legal = SASL_MECHANISMS.join(', ');
    const what = mechanism === '' ? 'missing' : `${mechanism}, which is not supported`;
    throw new SecurityProblem(`sasl.mechanism is ${what}: it must be one of ${legal}.`);
  }
  const jaas = parseJaas(source.value('sasl.jaas.config') ?? '');
  const wanted = mechanism === 'PLAIN' ? 'PlainLoginModule' : 'ScramLoginModule';
  const { username, password } = Object.fromEntries(jaas?.options ?? []);
  if (jaas?.module !== wanted || username === undefined || password === undefined) {
    throw new SecurityProblem(
      `sasl.jaas.config must be of the form …${wanted} required username="…" password="…"; ` +
        `for ${mechanism}.`,
    );
  }
  return { mechanism, username, password };
}

/**
 * What the settings ask for; undefined: nothing at all. `protocol` is the security protocol, by
 * default that of `security.protocol`. Throws {@link SecurityProblem}.
 */
export function connectionSecurity(
  source: SettingSource,
  protocol: string = source.value('security.protocol') ?? 'PLAINTEXT',
): ConnectionSecurity | undefined {
  if (!isSecurityProtocol(protocol)) {
    const legal = Object.keys(securityProtocols).join(', ');
    throw new SecurityProblem(`security.protocol must be one of ${legal}.`);
  }
  if (protocol === 'PLAINTEXT') return undefined;
  return {
    ...(protocol.endsWith('SSL') ? { tls: tlsOf(source) } : {}),
    ...(protocol.startsWith('SASL') ? { sasl: saslOf(source) } : {}),
  };
}
