/**
 * What a broker's settings say of security: per listener, and towards brokers and controllers.
 *
 * Used by the composition roots. Settings for one listener come before those for all. Everything is
 * read once at the start; what is wrong stops it with a sentence that names the setting.
 */
import type { Disk, TlsServerOptions } from '../io/runtime.ts';
import {
  type ConnectionSecurity,
  connectionSecurity,
  isSecurityProtocol,
  SASL_MECHANISMS,
  type SaslMechanism,
  SecurityProblem,
  type SecurityProtocol,
  type SettingSource,
  tlsIdentity,
  trustedCertificates,
} from '../protocol/connection-security.ts';
import { parseJaas } from '../protocol/jaas.ts';
import { type BrokerConfig, parseProtocolMap } from './broker-config.ts';
import { parseList } from './config-definition.ts';
import { principalMapping } from './principal-mapping.ts';

/** How clients of one listener authenticate. */
export interface ListenerSecurity {
  readonly protocol: SecurityProtocol;
  readonly tls?: TlsServerOptions;
  readonly sasl?: ListenerSasl;
  /** From the name in a certificate to the principal's; undefined: nobody is named so here. */
  readonly principalOf: (subject: string) => string | undefined;
}

/** The SASL side of a listener. */
export interface ListenerSasl {
  readonly mechanisms: readonly SaslMechanism[];
  /** Passwords of the users that PLAIN knows. */
  readonly plainUsers: ReadonlyMap<string, string>;
  /** In ms; 0: as long as the connection. */
  readonly maxReauthMs: number;
  /** Before a refusal is told, in ms. */
  readonly failureDelayMs: number;
}

/** The protocol of a listener; throws with a sentence when it is none of Kafka's. */
export function listenerProtocol(config: BrokerConfig, listener: string): SecurityProtocol {
  const map = parseProtocolMap(config.text('listener.security.protocol.map'));
  const protocol = map.get(listener) ?? listener;
  if (isSecurityProtocol(protocol)) return protocol;
  throw new Error(`listener.security.protocol.map has no protocol for listener ${listener}.`);
}

/** The name of the listener at which brokers of the cluster reach each other. */
export function interBrokerListener(config: BrokerConfig): string {
  const protocol = config.explicit('security.inter.broker.protocol');
  const name = config.explicit('inter.broker.listener.name') ?? protocol;
  return (name ?? config.text('inter.broker.listener.name')).trim().toUpperCase();
}

/** The settings of a listener, those for all listeners behind them. */
function settingsOf(config: BrokerConfig, disk: Disk, listener: string): SettingSource {
  const prefix = `listener.name.${listener.toLowerCase()}.`;
  return {
    value: (name) => config.explicit(`${prefix}${name}`) ?? config.explicit(name),
    readFile: (path) => disk.readFile(path),
  };
}

/** Kafka looks for a JAAS text under the mechanism. */
function withMechanism(source: SettingSource, mechanism: string | undefined): SettingSource {
  const byMechanism = `${(mechanism ?? '').toLowerCase()}.sasl.jaas.config`;
  return {
    ...source,
    value: (name) => {
      if (name === 'sasl.mechanism') return mechanism;
      return (
        (name === 'sasl.jaas.config' ? source.value(byMechanism) : undefined) ?? source.value(name)
      );
    },
  };
}

function clientSecurity(
  config: BrokerConfig,
  disk: Disk,
  listener: string,
  mechanismSetting: string,
): ConnectionSecurity | undefined {
  const protocol = listenerProtocol(config, listener);
  const mechanism = config.explicit(mechanismSetting);
  const source = withMechanism(settingsOf(config, disk, listener), mechanism);
  try {
    return connectionSecurity(source, protocol);
  } catch (error) {
    if (!(error instanceof SecurityProblem)) throw error;
    const message = error.message.replace('sasl.mechanism ', `${mechanismSetting} `);
    throw new Error(`Listener ${listener}: ${message}`);
  }
}

/** How this broker reaches the other brokers of its cluster; throws with a sentence. */
export function interBrokerSecurity(
  config: BrokerConfig,
  disk: Disk,
): ConnectionSecurity | undefined {
  const listener = interBrokerListener(config);
  return clientSecurity(config, disk, listener, 'sasl.mechanism.inter.broker.protocol');
}

/** How this broker reaches controllers; throws with a sentence. */
export function controllerSecurity(
  config: BrokerConfig,
  disk: Disk,
): ConnectionSecurity | undefined {
  const [listener] = parseList(config.explicit('controller.listener.names') ?? '');
  if (listener === undefined) return undefined;
  const name = listener.toUpperCase();
  return clientSecurity(config, disk, name, 'sasl.mechanism.controller.protocol');
}

/** Users of PLAIN: the `user_NAME` entries. */
function plainUsers(source: SettingSource, listener: string): ReadonlyMap<string, string> {
  const jaas = parseJaas(withMechanism(source, 'PLAIN').value('sasl.jaas.config') ?? '');
  if (jaas?.module !== 'PlainLoginModule') {
    throw new Error(
      `Listener ${listener}: plain.sasl.jaas.config must name the users of PLAIN: ` +
        '…PlainLoginModule required user_NAME="PASSWORD";',
    );
  }
  const users = [...jaas.options].flatMap(([name, password]) =>
    name.startsWith('user_') ? [[name.slice('user_'.length), password] as const] : [],
  );
  return new Map(users);
}

function saslOf(config: BrokerConfig, source: SettingSource, listener: string): ListenerSasl {
  const given = parseList(source.value('sasl.enabled.mechanisms') ?? '');
  const mechanisms = SASL_MECHANISMS.filter((each) => given.includes(each));
  const unknown = given.find((each) => !mechanisms.some((known) => known === each));
  if (unknown !== undefined || mechanisms.length === 0) {
    const legal = SASL_MECHANISMS.join(', ');
    throw new Error(`Listener ${listener}: sasl.enabled.mechanisms must be some of ${legal}.`);
  }
  return {
    mechanisms,
    plainUsers: mechanisms.includes('PLAIN') ? plainUsers(source, listener) : new Map(),
    maxReauthMs: Number(source.value('connections.max.reauth.ms') ?? 0),
    failureDelayMs: config.number('connection.failed.authentication.delay.ms'),
  };
}

function tlsOf(
  config: BrokerConfig,
  source: SettingSource,
  listener: string,
  isSasl: boolean,
): TlsServerOptions {
  const identity = tlsIdentity(source);
  if (identity === undefined) {
    throw new Error(`Listener ${listener}: ssl.keystore.location or …key is needed for TLS.`);
  }
  const ofListener = `listener.name.${listener.toLowerCase()}.ssl.client.auth`;
  // As in Apache Kafka: where SASL authenticates, certificates are wished for one listener only.
  const wish = isSasl ? config.explicit(ofListener) : source.value('ssl.client.auth');
  const clientAuth = (wish ?? 'none').trim();
  if (clientAuth !== 'none' && clientAuth !== 'requested' && clientAuth !== 'required') {
    throw new Error(`${ofListener} must be none, requested or required.`);
  }
  return { identity, trusted: trustedCertificates(source), clientAuth };
}

/** How clients of a listener authenticate; throws with a sentence. */
export function listenerSecurity(
  config: BrokerConfig,
  disk: Disk,
  listener: string,
): ListenerSecurity {
  const protocol = listenerProtocol(config, listener);
  const source = settingsOf(config, disk, listener);
  const isSasl = protocol.startsWith('SASL');
  try {
    return {
      protocol,
      principalOf: principalMapping(source.value('ssl.principal.mapping.rules') ?? 'DEFAULT'),
      ...(protocol.endsWith('SSL') ? { tls: tlsOf(config, source, listener, isSasl) } : {}),
      ...(isSasl ? { sasl: saslOf(config, source, listener) } : {}),
    };
  } catch (error) {
    if (!(error instanceof SecurityProblem)) throw error;
    throw new Error(`Listener ${listener}: ${error.message}`);
  }
}
