#!/usr/bin/env node
/**
 * The `twinlog` command: names, options and help of every subcommand, and what a failure exits
 * with.
 *
 * Each subcommand is a file of its own; this one only parses. Exit codes: see `output.ts`.
 */
import { readFileSync } from 'node:fs';
import { Argument, Command, InvalidArgumentError, Option } from 'commander';
import { ConnectionError } from '../protocol/kafka-connection.ts';
import { dumpLog } from './dump-log.ts';
import { DECODED_TOPICS } from './dump-records.ts';
import { guestRun } from './guest.ts';
import { guestCheck } from './guest-check.ts';
import { guestLeave } from './guest-leave.ts';
import { guestMaintenance } from './guest-maintenance.ts';
import { guestRescue } from './guest-rescue.ts';
import { mirror } from './mirror.ts';
import { addTopics, createMirror, describeMirrors, listMirrors, removeTopics } from './mirrors.ts';
import { CommandError } from './output.ts';
import { quickstart } from './quickstart.ts';
import { serve } from './serve.ts';

const LOG_LEVELS = ['debug', 'info', 'warn', 'error', 'silent'];
const SERVE_PORT = 9_092;
const MIRROR_PORT = 19_092;

const collect = (value: string, all: string[]): string[] => [...all, value];
const collectFirst = (value: string, all: string[] = []): string[] => [...all, value];
const collectNumber = (value: string, all: number[]): number[] => [...all, wholeNumber(value)];

function wholeNumber(text: string): number {
  if (!/^\d+$/.test(text)) throw new InvalidArgumentError('It must be a whole number.');
  return Number(text);
}

function version(): string {
  const file = new URL('../../package.json', import.meta.url);
  return (JSON.parse(readFileSync(file, 'utf8')) as { version: string }).version;
}

/** `--json`; its default is no news to anybody. */
function jsonOption(command: Command): Command {
  command.setOptionValue('json', false);
  return command.option('--json', 'one JSON value per line instead of text');
}

/** An option that may be given more than once. */
function repeatable(command: Command, name: 'set' | 'config', description: string): Command {
  command.setOptionValue(name, []);
  return command.option(`--${name} <name=value>`, `${description} (repeatable)`, collect);
}

function brokerOptions(command: Command, port: number, logLevel: string): Command {
  command.setOptionValue('defaultPort', port);
  command
    .option('--data <dir>', 'data directory (default: "twinlog-data")')
    .option('--listen <host:port>', `where clients connect (default: "127.0.0.1:${port}")`)
    .option('--properties <file>', 'broker settings, as in a server.properties file');
  repeatable(command, 'set', 'one broker setting');
  return jsonOption(command).addOption(
    new Option('--log-level <level>', 'what is logged to stderr')
      .choices(LOG_LEVELS)
      .default(logLevel),
  );
}

/** `--command-config`, as Kafka's own tools have it. */
function commandConfigOption(command: Command): Command {
  return command.option('--command-config <file>', 'settings of a client: TLS, SASL');
}

function mirrorsOptions(command: Command): Command {
  const bootstrap = `127.0.0.1:${SERVE_PORT}`;
  command.option('--bootstrap-server <host:port>', 'a broker of the destination', bootstrap);
  return jsonOption(commandConfigOption(command));
}

function mirrorOptions(command: Command): Command {
  repeatable(brokerOptions(command, MIRROR_PORT, 'warn'), 'config', 'one mirror setting');
  return command
    .option('--topics <regex>', 'topics to mirror; must match the whole name', '.*')
    .option('--name <mirror>', 'name of the mirror', 'source');
}

function quickstartOptions(command: Command): Command {
  return command
    .option('--rate <n>', 'records per second to generate', wholeNumber, 100)
    .option('--seconds <n>', 'stop after so long; 0: run until Ctrl-C', wholeNumber, 0);
}

function addMirrorsCommands(program: Command): void {
  const mirrors = program.command('mirrors').description('manage the mirrors of a running twinlog');
  const create = mirrors.command('create <name>');
  create.setOptionValue('skipValidation', false);
  repeatable(mirrorsOptions(create), 'config', 'one mirror setting')
    .description('create a mirror of a source cluster')
    .requiredOption('--source <host:port>', 'bootstrap servers of the source')
    .option('--source-config <file>', 'settings of a client of the source: TLS, SASL')
    .option('--skip-validation', 'create it although the source cannot be reached now')
    .action(createMirror);
  mirrorsOptions(mirrors.command('add <name> <topics...>'))
    .description('mirror these topics of the source; read-only here from now on')
    .action(addTopics);
  mirrorsOptions(mirrors.command('remove <name> <topics...>'))
    .description('stop mirroring these topics and make them writable here (failover)')
    .option('--no-wait', 'return before the partitions are STOPPED')
    .addOption(
      new Option('--open-transactions <how>', 'at a guest: cut them off, or end them by a marker')
        .choices(['cut', 'close'])
        .default('cut'),
    )
    .action(removeTopics);
  mirrorsOptions(mirrors.command('list')).description('list the mirrors').action(listMirrors);
  mirrorsOptions(mirrors.command('describe [names...]'))
    .description('show state, offsets and lag of every partition')
    .action(describeMirrors);
}

/** Options of the commands that look at a guest's cluster from outside. */
function guestClusterOptions(command: Command): Command {
  command.requiredOption('--bootstrap-controller <host:port>', 'controllers of the cluster');
  return jsonOption(commandConfigOption(command));
}

function addMaintenanceCommand(guest: Command): void {
  const maintenance = guestClusterOptions(guest.command('maintenance'));
  maintenance.setOptionValue('nodeId', []);
  maintenance
    .description('keep followers in sync, and topics locked, during a rolling restart')
    .addArgument(new Argument('<wish>', 'before, and after the restart').choices(['on', 'off']))
    .option('--node-id <id>', 'only this guest (repeatable; default: all)', collectNumber)
    .option('--timeout <seconds>', 'how long to wait until it is in force', wholeNumber, 120)
    .option('--no-wait', 'return before it is in force')
    .action(guestMaintenance);
}

function addGuestCommands(program: Command): void {
  const guest = program
    .command('guest')
    .description('mirror into an Apache Kafka cluster, as one of its brokers');
  brokerOptions(guest.command('run'), SERVE_PORT, 'info')
    .description('join the cluster and stay until a signal comes')
    .requiredOption('--bootstrap-controller <host:port>', 'controllers of the cluster')
    .option('--node-id <id>', 'a node id that no broker or controller has', wholeNumber)
    .action(guestRun);
  guestClusterOptions(guest.command('check'))
    .description('show what a cluster needs before a guest joins; joins and changes nothing')
    .option('--node-id <id>', 'the node id that the guest shall have', wholeNumber)
    .option('--listener <name>', "the name of the guest's listener", 'PLAINTEXT')
    .option('--principal <name>', "who the guest is to the cluster's ACLs (User:NAME)")
    .action(guestCheck);
  const leave = guestClusterOptions(guest.command('leave'));
  leave.setOptionValue('unmarked', false);
  leave
    .description('make the cluster forget a guest that has stopped and holds no partition')
    .requiredOption('--node-id <id>', 'the node id of the guest', wholeNumber)
    .option('--unmarked', 'also when it does not say any more that it was a guest')
    .action(guestLeave);
  addMaintenanceCommand(guest);
  const rescue = guestClusterOptions(guest.command('rescue'));
  rescue.setOptionValue('yes', false);
  rescue
    .description('make native topics of mirror topics whose guests are all gone for good')
    .option('--mirror <name>', 'only this mirror (repeatable; default: all)', collectFirst)
    .option('--yes', 'do it; without, show what would be done and what may be missing')
    .action(guestRescue);
}

function addDumpLogCommand(program: Command): void {
  const dump = jsonOption(program.command('dump-log <paths...>'));
  dump.setOptionValue('records', false);
  dump.setOptionValue('deep', false);
  dump
    .description('show and check the files of a log directory, in use or not')
    .option('--records', 'show the records of every batch')
    .option('--deep', 'check every CRC, record, offset and index entry')
    .addOption(
      new Option('--as <topic>', 'read records as those of this internal topic').choices(
        DECODED_TOPICS,
      ),
    )
    .action(dumpLog);
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
  addGuestCommands(program);
  addDumpLogCommand(program);
  quickstartOptions(jsonOption(program.command('quickstart')))
    .description('see it work: two clusters, a generator and a mirror in one process')
    .option('--data <dir>', 'keep the data here instead of a temporary directory')
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
