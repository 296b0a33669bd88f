/**
 * Grants what `kafka-acls.sh … --add` commands in a text would grant, without a JVM for each.
 */
import { nodeRuntime } from '../../src/io/node/node-runtime.ts';
import { KafkaConnection } from '../../src/protocol/kafka-connection.ts';
import { array, int8, int16, int32, message, nullable, string } from '../../src/protocol/schema.ts';

const CreateAclsRequest = message({
  apiKey: 30,
  name: 'CreateAclsRequest',
  type: 'request',
  validVersions: '1-3',
  flexibleVersions: '2+',
  fields: {
    creations: array('0+', {
      resourceType: int8('0+'),
      resourceName: string('0+'),
      resourcePatternType: int8('1+', { default: 3 }),
      principal: string('0+'),
      host: string('0+'),
      operation: int8('0+'),
      permissionType: int8('0+'),
    }),
  },
});

const CreateAclsResponse = message({
  apiKey: 30,
  name: 'CreateAclsResponse',
  type: 'response',
  validVersions: '1-3',
  flexibleVersions: '2+',
  fields: {
    throttleTimeMs: int32('0+'),
    results: array('0+', {
      errorCode: int16('0+'),
      errorMessage: nullable(string('0+'), '0+'),
    }),
  },
});

const OPERATIONS = [
  ...['Unknown', 'Any', 'All', 'Read', 'Write', 'Create', 'Delete', 'Alter', 'Describe'],
  ...['ClusterAction', 'DescribeConfigs', 'AlterConfigs', 'IdempotentWrite'],
];
const RESOURCES: Readonly<Record<string, number>> = {
  '--topic': 2,
  '--group': 3,
  '--cluster': 4,
  '--transactional-id': 5,
};
const CLUSTER_NAME = 'kafka-cluster';
const ALLOW = 3;

function creationsOf(command: string) {
  const words = (command.match(/'[^']*'|\S+/g) ?? []).map((word) => word.replace(/^'|'$/g, ''));
  const after = (option: string): string[] =>
    words.flatMap((word, at) => (word === option ? [words[at + 1] ?? ''] : []));
  const isPrefixed = after('--resource-pattern-type').includes('prefixed');
  const resources = Object.entries(RESOURCES).flatMap(([option, resourceType]) => {
    if (option !== '--cluster') return after(option).map((name) => ({ resourceType, name }));
    return words.includes(option) ? [{ resourceType, name: CLUSTER_NAME }] : [];
  });
  return after('--allow-principal').flatMap((principal) =>
    resources.flatMap(({ resourceType, name }) =>
      after('--operation').map((operation) => ({
        resourceType,
        resourceName: name,
        resourcePatternType: isPrefixed ? 4 : 3,
        principal,
        host: '*',
        operation: OPERATIONS.indexOf(operation),
        permissionType: ALLOW,
      })),
    ),
  );
}

/** Runs the commands at a broker where tests are a super user; answers how many there were. */
export async function grantAll(port: number, text: string): Promise<number> {
  const commands = text.match(/kafka-acls\.sh [^\n]*--add [^\n]*/g) ?? [];
  const creations = commands.flatMap(creationsOf);
  if (creations.length === 0) return 0;
  const connection = await KafkaConnection.connect(nodeRuntime({ logLevel: 'silent' }), {
    host: '127.0.0.1',
    port,
    clientId: 'acls',
  });
  try {
    const { results } = await connection.send(CreateAclsRequest, CreateAclsResponse, { creations });
    const bad = results.find(({ errorCode }) => errorCode !== 0);
    if (bad !== undefined) throw new Error(`ACL refused: ${bad.errorCode} ${bad.errorMessage}`);
    return commands.length;
  } finally {
    connection.close();
  }
}
