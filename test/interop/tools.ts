/**
 * Runs Apache Kafka's command line tools (their main classes) with captured output and a time-out.
 */
import { mkdtempSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type JvmMode, javaArguments, requireKafkaJars } from './kafka-jars.ts';
import { type RunResult, removeDirectory, run } from './processes.ts';

/** Main classes by the name of their script. */
export const TOOLS = {
  topics: 'org.apache.kafka.tools.TopicCommand',
  configs: 'kafka.admin.ConfigCommand',
  acls: 'org.apache.kafka.tools.AclCommand',
  consoleProducer: 'org.apache.kafka.tools.ConsoleProducer',
  consoleConsumer: 'org.apache.kafka.tools.consumer.ConsoleConsumer',
  consumerGroups: 'org.apache.kafka.tools.consumer.group.ConsumerGroupCommand',
  groups: 'org.apache.kafka.tools.GroupsCommand',
  dumpLog: 'kafka.tools.DumpLogSegments',
  getOffsets: 'org.apache.kafka.tools.GetOffsetShell',
  deleteRecords: 'org.apache.kafka.tools.DeleteRecordsCommand',
  reassignPartitions: 'org.apache.kafka.tools.reassign.ReassignPartitionsCommand',
  leaderElection: 'org.apache.kafka.tools.LeaderElectionCommand',
  transactions: 'org.apache.kafka.tools.TransactionsCommand',
  logDirs: 'org.apache.kafka.tools.LogDirsCommand',
  features: 'org.apache.kafka.tools.FeatureCommand',
  cluster: 'org.apache.kafka.tools.ClusterTool',
  metadataQuorum: 'org.apache.kafka.tools.MetadataQuorumCommand',
  brokerApiVersions: 'org.apache.kafka.tools.BrokerApiVersionsCommand',
  verifiableProducer: 'org.apache.kafka.tools.VerifiableProducer',
  verifiableConsumer: 'org.apache.kafka.tools.VerifiableConsumer',
  transactionalCopier: 'org.apache.kafka.tools.TransactionalMessageCopier',
  producerPerformance: 'org.apache.kafka.tools.ProducerPerformance',
  consumerPerformance: 'org.apache.kafka.tools.ConsumerPerformance',
  replicaVerification: 'org.apache.kafka.tools.ReplicaVerificationTool',
} as const;

export type Tool = keyof typeof TOOLS;

/** How to run a tool. */
export interface ToolOptions {
  readonly stdin?: string;
  readonly timeoutMs?: number;
  readonly mode?: JvmMode;
}

/** Runs a tool to its end; its failure is a result, not an exception. */
export async function runTool(
  tool: Tool,
  args: readonly string[],
  options: ToolOptions = {},
): Promise<RunResult> {
  const libs = await requireKafkaJars();
  const { mode = 'fast', ...rest } = options;
  return await run('java', javaArguments(libs, TOOLS[tool], args, { mode }), rest);
}

/** Runs a tool and returns its standard output; throws with all output when it fails. */
export async function tool(
  name: Tool,
  args: readonly string[],
  options: ToolOptions = {},
): Promise<string> {
  const result = await runTool(name, args, options);
  if (result.code === 0) return result.stdout;
  const why = result.timedOut ? 'timed out' : `ended with ${result.code ?? result.signal}`;
  throw new Error(`${name} ${args.join(' ')} ${why}\n${result.stdout}${result.stderr}`);
}

/** Runs `body` with a temporary file of this content (for tools that want a JSON file). */
export async function withFile<T>(content: string, body: (path: string) => Promise<T>): Promise<T> {
  const directory = mkdtempSync(join(tmpdir(), 'twinlog-tool-'));
  try {
    const path = join(directory, 'input.json');
    writeFileSync(path, content);
    return await body(path);
  } finally {
    removeDirectory(directory);
  }
}

/** Producer ids of what Kafka's own tool lists as transactions without an end in a topic. */
export async function hangingTransactions(bootstrap: string, topic: string): Promise<string[]> {
  const output = await tool('transactions', [
    ...['--bootstrap-server', bootstrap],
    ...['find-hanging', '--topic', topic, '--max-transaction-timeout', '0'],
  ]);
  const rows = output.split('\n').map((line) => line.trim().split(/\s+/));
  return rows.flatMap(([name, , producerId = '']) => (name === topic ? [producerId] : []));
}
