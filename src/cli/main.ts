#!/usr/bin/env node
/**
 * The `twinlog` command: names, options and help of every subcommand, and what a failure exits
 * with.
 *
 * Each subcommand is a file of its own; this one only parses. Exit codes: see `output.ts`.
 */
import { readFileSync } from 'node:fs';
import { Command, InvalidArgumentError, Option } from 'commander';
import { ConnectionError } from '../protocol/kafka-connection.ts';
import { mirror } from './mirror.ts';
import { addTopics, createMirror, describeMirrors, listMirrors, removeTopics } from './mirrors.ts';
import { CommandError } from './output.ts';
import { quickstart } from './quickstart.ts';
import { serve } from './serve.ts';

const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'];
const SERVE_PORT = 9_092;
const MIRROR_PORT = 19_092;

const collect = (value: string, all: string[]): string[] => [...all, value];

function wholeNumber(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError('It must be a whole number.');
  return Number(text);
}

function version(): string {
  const file = new URL('../../package.json', import.meta.url);
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
}

function brokerOptions(command: Command, port: number, logLevel: string): Command {
  command.setOptionValue('defaultPort', port);
  return command
    .addOption(new Option('--data <dir>', 'data directory').default(undefined, 'twinlog-data'))
    .addOption(
      new Option('--listen <host:port>', 'where clients connect').default(
        undefined,
        `127.0.0.1:${port}`,
      ),
    )
    .option('--properties <file>', 'broker settings, as in a server.properties file')
    .option('--set <name=value>', 'one broker setting (repeatable)', collect, [])
    .option('--json', 'one JSON value per line instead of text', false)
    .addOption(
      new Option('--log-level <level>', 'what is logged to stderr')
        .choices(LOG_LEVELS)
        .default(logLevel),
    );
}

function mirrorsOptions(command: Command): Command {
  return command
    .option('--bootstrap-server <host:port>', 'a broker of the destination', '127.0.0.1:9092')
    .option('--json', 'one JSON value per line instead of text', false);
}

function mirrorOptions(command: Command): Command {
  return brokerOptions(command, MIRROR_PORT, 'warn')
    .option('--topics <regex>', 'topics to mirror; must match the whole name', '.*')
    .option('--name <mirror>', 'name of the mirror', 'source')
    .option('--config <name=value>', 'one mirror setting (repeatable)', collect, []);
}

function quickstartOptions(command: Command): Command {
  return command
    .option('--rate <n>', 'records per second to generate', wholeNumber, 100)
    .option('--seconds <n>', 'stop after so long; 0: run until Ctrl-C', wholeNumber, 0);
}

function addMirrorsCommands(program: Command): void {
  const mirrors = program.command('mirrors').description('manage the mirrors of a running twinlog');
  mirrorsOptions(mirrors.command('create <name>'))
    .description('create a mirror of a source cluster')
    .requiredOption('--source <host:port>', 'bootstrap servers of the source')
    .option('--config <name=value>', 'one mirror setting (repeatable)', collect, [])
    .option('--skip-validation', 'create it although the source cannot be reached now', false)
    .action(createMirror);
  mirrorsOptions(mirrors.command('add <name> <topics...>'))
    .description('mirror these topics of the source; read-only here from now on')
    .action(addTopics);
  mirrorsOptions(mirrors.command('remove <name> <topics...>'))
    .description('stop mirroring these topics and make them writable here (failover)')
    .option('--no-wait', 'return before the partitions are STOPPED')
    .action(removeTopics);
  mirrorsOptions(mirrors.command('list')).description('list the mirrors').action(listMirrors);
  mirrorsOptions(mirrors.command('describe [names...]'))
    .description('show state, offsets and lag of every partition')
    .action(describeMirrors);
}

function buildProgram(): Command {
  const program = new Command('twinlog')
    .description('A Kafka-compatible broker with native cluster mirroring.')
    .version(version())
    .showHelpAfterError('(twinlog --help lists the commands)')
    .exitOverride((error) => process.exit(error.exitCode === 0 ? 0 : 2));
  brokerOptions(program.command('serve'), SERVE_PORT, 'info')
    .description('run a broker')
    .action(serve);
  mirrorOptions(program.command('mirror'))
    .description('mirror topics of a Kafka cluster into a broker started here')
    .requiredOption('--source <host:port>', 'bootstrap servers of the source cluster')
    .action(mirror);
  addMirrorsCommands(program);
  quickstartOptions(program.command('quickstart'))
    .description('see it work: two clusters, a generator and a mirror in one process')
    .option('--data <dir>', 'keep the data here instead of a temporary directory')
    .option('--json', 'one JSON value per line instead of text', false)
    .addOption(
      new Option('--log-level <level>', 'what is logged to stderr')
        .choices(LOG_LEVELS)
        .default('error'),
    )
    .action(quickstart);
  quickstartOptions(mirrorOptions(program.command('start', { hidden: true })))
    .description('npm start: mirror when --source is given, else quickstart')
    .option('--source <host:port>', 'bootstrap servers of the source cluster')
    .action((options) =>
      options.source === undefined
        ? quickstart({ ...options, logLevel: 'error' })
        : mirror(options),
    );
  return program;
}

try {
  await buildProgram().parseAsync();
  process.exitCode = 0;
} catch (error) {
  if (error instanceof CommandError) {
    process.stderr.write(`twinlog: ${error.message}\n`);
    process.exit(error.exitCode);
  }
  if (error instanceof ConnectionError) {
    process.stderr.write(`twinlog: ${error.message}\n`);
    process.exit(1);
  }
  throw error;
}
