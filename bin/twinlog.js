#!/usr/bin/env node
// Starts the built command line; says what to do when Node.js is too old for it.
const [major = 0, minor = 0] = process.versions.node.split('.').map(Number);
if (major < 22 || (major === 22 && minor < 18)) {
  process.stderr.write(
    `twinlog needs Node.js 22.18 or newer, this is ${process.versions.node}. ` +
      'Run it with npx in the folder where twinlog is installed: npx twinlog …\n',
  );
  process.exit(1);
}
await import('../dist/cli/main.js');
