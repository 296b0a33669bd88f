/**
 * Whether the brokers of a cluster can be reached where brokers reach each other, and whether a
 * guest would listen under the same name (G9).
 *
 * The third step of `twinlog guest check`. Followers dial a guest at the listener whose name is the
 * cluster's inter-broker listener; a guest without it would lead partitions that nobody follows.
 * The name is not in the metadata: a broker is asked for it, else it is guessed.
 */
import {
  type BrokerListener,
  type BrokerRegistrationImage,
  ConfigResourceType,
  type MetadataImage,
} from '../../metadata/image.ts';
import type { HostPort } from '../../metadata/quorum/probe.ts';
import { protocolCode } from '../../protocol/connection-security.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import { ConnectionError, type KafkaConnection } from '../../protocol/kafka-connection.ts';
import {
  DescribeConfigsRequest,
  DescribeConfigsResponse,
} from '../../protocol/messages/32-describe-configs.ts';
import { apacheBrokers, isLive } from '../guest-brokers.ts';
import { type Check, listed, ok, problem, warning } from './check.ts';
import { type CheckRuntime, connectForCheck, unreachable } from './check-controllers.ts';

const LISTENER_CONFIG = 'inter.broker.listener.name';
const PROTOCOL_CONFIG = 'security.inter.broker.protocol';
/** What Kafka takes when neither is set. */
const DEFAULT_LISTENER = 'PLAINTEXT';
const PROTOCOLS = ['PLAINTEXT', 'SSL', 'SASL_PLAINTEXT', 'SASL_SSL'];

/** What is known of the listener that brokers use. */
export interface InterBroker {
  readonly checks: readonly Check[];
  /** Undefined: it could not be found out. */
  readonly name: string | undefined;
  /** A broker that answered there. */
  readonly reachable: HostPort | undefined;
}

function listenerOf(broker: BrokerRegistrationImage, name: string): BrokerListener | undefined {
  return broker.listeners.find((listener) => listener.name === name);
}

/** Names that every broker of the cluster's own has. */
function commonNames(brokers: readonly BrokerRegistrationImage[]): string[] {
  const [first, ...others] = brokers;
  return (first?.listeners ?? [])
    .map(({ name }) => name)
    .filter((name) => others.every((broker) => listenerOf(broker, name) !== undefined));
}

/** Asks a broker for the name; undefined when it does not tell. */
async function askName(connection: KafkaConnection, id: number): Promise<string | undefined> {
  const { results } = await connection.send(DescribeConfigsRequest, DescribeConfigsResponse, {
    resources: [
      {
        resourceType: ConfigResourceType.BROKER,
        resourceName: String(id),
        configurationKeys: [LISTENER_CONFIG, PROTOCOL_CONFIG],
      },
    ],
  });
  const [result] = results;
  if (result?.errorCode !== errors.NONE.code) return undefined;
  const values = new Map(result.configs.map(({ name, value }) => [name, value]));
  const name = values.get(LISTENER_CONFIG) ?? values.get(PROTOCOL_CONFIG) ?? DEFAULT_LISTENER;
  return name.toUpperCase();
}

/** The name as the first live broker tells it that can be asked. */
async function findName(runtime: CheckRuntime, image: MetadataImage): Promise<string | undefined> {
  for (const { id, listeners } of apacheBrokers(image)) {
    if (!isLive(image, id)) continue;
    const spoken = protocolCode(runtime.security);
    for (const listener of listeners.filter((each) => each.securityProtocol === spoken)) {
      try {
        const connection = await connectForCheck(runtime, listener);
        try {
          const name = await askName(connection, id);
          if (name !== undefined) return name;
        } finally {
          connection.close();
        }
      } catch (error) {
        if (!(error instanceof ConnectionError)) throw error;
        // Another listener may be reached; that this one is not is told by `reach`.
      }
    }
  }
  return undefined;
}

/** Compares the guest's listener with the cluster's, and dials every broker there. */
export async function checkInterBroker(
  runtime: CheckRuntime,
  image: MetadataImage,
  wished: string,
): Promise<InterBroker> {
  const brokers = apacheBrokers(image);
  const common = commonNames(brokers);
  const told = await findName(runtime, image);
  const name = told ?? (common.length === 1 ? common[0] : undefined);
  const spoken = PROTOCOLS[protocolCode(runtime.security)] ?? DEFAULT_LISTENER;
  const wish = { name: wished.toUpperCase(), protocol: spoken };
  const checks = [checkName(name, told !== undefined, wish, common)];
  if (name === undefined) return { checks, name, reachable: undefined };
  const others = common.filter((each) => each !== name);
  if (others.length > 0) checks.push(checkOthers(name, others));
  const protocol = Math.max(
    ...brokers.map((broker) => listenerOf(broker, name)?.securityProtocol ?? 0),
  );
  if (protocol !== protocolCode(runtime.security)) {
    const spoken = PROTOCOLS[protocol] ?? protocol;
    const found = `brokers reach each other with ${spoken}`;
    const fix = `Give --command-config a file of client settings with security.protocol=${spoken}.`;
    checks.push(problem('inter-broker protocol', found, fix));
    return { checks, name, reachable: undefined };
  }
  return { ...(await reach(runtime, image, name, checks)), name };
}

function checkName(
  name: string | undefined,
  isTold: boolean,
  wish: { readonly name: string; readonly protocol: string },
  common: readonly string[],
): Check {
  const check = 'inter-broker listener';
  const wished = wish.name;
  if (name === undefined) {
    const found = `no broker tells its name; the brokers listen as ${listed(common)}`;
    const fix =
      `Look up ${LISTENER_CONFIG} in a broker's server.properties, and name it ` +
      'with --listener.';
    return common.includes(wished) ? warning(check, found, fix) : problem(check, found, fix);
  }
  const how = isTold ? '' : ' (guessed: it is the only one)';
  if (name === wished) return ok(check, `${name}, as the guest's${how}`, { listener: name });
  const found = `brokers use ${name}${how}, the guest would use ${wished}: none would follow it`;
  const fix =
    `Run the guest with --set listeners=${name}://HOST:PORT --set ${LISTENER_CONFIG}=${name} ` +
    `--set listener.security.protocol.map=${name}:${wish.protocol}, and the check with ` +
    `--listener ${name}.`;
  return problem(check, found, fix, { listener: name });
}

function checkOthers(name: string, others: readonly string[]): Check {
  const found = `brokers listen also as ${listed(others)}`;
  const fix =
    'Clients that come in there see no leader for mirror topics, unless the guest listens there ' +
    `too: --set listeners=${name}://HOST:PORT,${others[0]}://HOST:PORT.`;
  return warning('client listeners', found, fix, { listeners: others });
}

async function reach(
  runtime: CheckRuntime,
  image: MetadataImage,
  name: string,
  checks: readonly Check[],
): Promise<Pick<InterBroker, 'checks' | 'reachable'>> {
  const live = apacheBrokers(image).filter(({ id }) => isLive(image, id));
  const failures: Check[] = [];
  let reachable: HostPort | undefined;
  for (const broker of live) {
    const check = `broker ${broker.id}`;
    const listener = listenerOf(broker, name);
    if (listener === undefined) {
      const fix = 'Give all brokers the same inter-broker listener.';
      failures.push(problem(check, `it does not listen as ${name}`, fix));
      continue;
    }
    try {
      (await connectForCheck(runtime, listener)).close();
      reachable ??= listener;
    } catch (error) {
      if (!(error instanceof ConnectionError)) throw error;
      failures.push(unreachable(check, listener, error));
    }
  }
  const count = live.length - failures.length;
  const summary = ok('brokers on it', `${count} of ${live.length} answer`);
  return { checks: [...checks, ...failures, ...(count > 0 ? [summary] : [])], reachable };
}

/** An error of a request as a sentence. */
export function refusal(code: number, message: string | null = null): string {
  return message === null || message === '' ? errorName(code) : `${errorName(code)}: ${message}`;
}
