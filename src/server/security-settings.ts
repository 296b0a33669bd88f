/**
 * The settings of a broker that are about security, under Apache Kafka's names.
 *
 * Part of the table in `broker-config.ts`; what they mean is in `listener-security.ts`. Most may
 * be set for one listener (`listener.name.NAME.…`), JAAS texts also for one mechanism
 * (`listener.name.NAME.MECHANISM.sasl.jaas.config`).
 */
import type { ConfigDefinition } from './config-definition.ts';

/** The authorizer whose rules are known here. */
export const STANDARD_AUTHORIZER = 'org.apache.kafka.metadata.authorizer.StandardAuthorizer';

function define(
  name: string,
  type: ConfigDefinition['type'],
  value: string | null,
  doc: string,
  rest: Partial<ConfigDefinition> = {},
): ConfigDefinition {
  return { name, type, default: value, doc, ...rest };
}

const PEM = ['PEM'];

/** Every security setting. */
export const securityDefinitions: readonly ConfigDefinition[] = [
  define('security.inter.broker.protocol', 'string', null, 'Instead of a listener name.'),
  define('controller.listener.names', 'list', null, 'Names of the listeners of controllers.'),
  define('sasl.mechanism.inter.broker.protocol', 'string', null, 'How brokers authenticate.'),
  define('sasl.mechanism.controller.protocol', 'string', null, 'The same towards controllers.'),
  define('sasl.enabled.mechanisms', 'list', null, 'How clients may authenticate.'),
  define('sasl.jaas.config', 'password', null, 'Login module with user, password and users.'),
  define('ssl.truststore.type', 'string', 'PEM', 'Kind of trust store.', { values: PEM }),
  define('ssl.truststore.location', 'string', null, 'File with certificates to trust.'),
  define('ssl.truststore.certificates', 'password', null, 'Certificates to trust.'),
  define('ssl.keystore.type', 'string', 'PEM', 'Kind of key store.', { values: PEM }),
  define('ssl.keystore.location', 'string', null, 'File with certificates and key.'),
  define('ssl.keystore.certificate.chain', 'password', null, 'Certificates of this broker.'),
  define('ssl.keystore.key', 'password', null, 'Private key of this broker.'),
  define('ssl.key.password', 'password', null, 'Password of the private key.'),
  define('ssl.endpoint.identification.algorithm', 'string', 'https', 'Host name check.'),
  define('ssl.client.auth', 'string', 'none', 'Whether clients show certificates.', {
    values: ['none', 'requested', 'required'],
  }),
  define('ssl.principal.mapping.rules', 'string', 'DEFAULT', 'From names to principals.'),
  define('connections.max.reauth.ms', 'long', '0', 'How long a client stays authenticated.', {
    min: 0,
  }),
  define('connection.failed.authentication.delay.ms', 'int', '100', 'Wait before a refusal.', {
    min: 0,
  }),
  define('authorizer.class.name', 'class', '', "Whether the cluster's ACLs are in force."),
  define('super.users', 'string', '', 'Principals that may do everything, with ; between.'),
  define('allow.everyone.if.no.acl.found', 'boolean', 'false', 'What counts without ACLs.'),
];

const names = new Set(securityDefinitions.map(({ name }) => name));

/** Whether the name sets a security setting for one listener, or for one mechanism. */
export function isPrefixedSecurityName(name: string): boolean {
  const rest = name.replace(/^listener\.name\.[^.]+\./, '');
  if (names.has(rest)) return rest !== name;
  return /^(plain|scram-sha-256|scram-sha-512)\.sasl\.jaas\.config$/.test(rest);
}
