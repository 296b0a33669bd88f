/**
 * Prints benchmark results as tables of medians, with the ratios to twinlog.
 */

/** Named figures of one run. */
export type Measurement = Readonly<Record<string, number>>;

/** The figures shown, and whether more is better (undefined: no ratio). */
const FIGURES: readonly [key: string, title: string, better: 'more' | 'less' | undefined][] = [
  ['mbPerSecond', 'MB/s', 'more'],
  ['cpuPerGb', 'CPU s/GB', 'less'],
  ['copierCpuPerGb', 'copier alone', 'less'],
  ['cpuWholePerGb', 'CPU s/GB from start', 'less'],
  ['firstRecordSeconds', 'first record s', 'less'],
  ['loadMbPerSecond', 'load MB/s', undefined],
  ['lagP50Ms', 'lag p50 ms', 'less'],
  ['lagP99Ms', 'lag p99 ms', 'less'],
  ['p50Ms', 'p50 ms', 'less'],
  ['p99Ms', 'p99 ms', 'less'],
  ['maxMs', 'max ms', undefined],
  ['secondsPerGb', 's/GB', 'less'],
  ['microsecondsEach', 'µs each', 'less'],
  ['cpuMicrosecondsEach', 'CPU µs each', 'less'],
  ['createSeconds', 'create s', 'less'],
  ['stopSeconds', 'stop s', 'less'],
  ['startSeconds', 'start s', 'less'],
  ['crashStartSeconds', 'start after kill s', 'less'],
  ['startCpuSeconds', 'start CPU s', 'less'],
  ['memoryMiB', 'MiB after start', 'less'],
  ['cpuPercent', 'CPU %', 'less'],
  ['copierCpuPercent', 'copier CPU %', 'less'],
  ['brokersCpuPercent', 'brokers CPU %', 'less'],
  ['copierMiB', 'copier MiB', 'less'],
  ['brokersMiB', 'brokers MiB', 'less'],
  ['peakMemoryMiB', 'peak MiB', 'less'],
];

/** The middle value (of an even number, the lower middle). */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.floor((sorted.length - 1) / 2)] ?? Number.NaN;
}

/** The value that this share of the sorted values does not exceed. */
export function quantile(sorted: readonly number[], share: number): number {
  const index = Math.min(sorted.length - 1, Math.floor(share * sorted.length));
  return sorted[index] ?? Number.NaN;
}

function number(value: number): string {
  if (Number.isNaN(value)) return '-';
  return Math.abs(value) >= 100 ? value.toFixed(0) : value.toPrecision(3);
}

/** `cells` as lines with aligned columns. */
function aligned(rows: readonly (readonly string[])[]): string {
  const widths: number[] = [];
  for (const row of rows) {
    for (const [index, cell] of row.entries()) {
      widths[index] = Math.max(widths[index] ?? 0, cell.length);
    }
  }
  const line = (row: readonly string[]): string =>
    row
      .map((cell, index) =>
        index === 0 ? cell.padEnd(widths[0] ?? 0) : cell.padStart(widths[index] ?? 0),
      )
      .join('  ')
      .trimEnd();
  return rows.map(line).join('\n');
}

function scenarioTable(byName: ReadonlyMap<string, readonly Measurement[]>): string {
  const shown = FIGURES.filter(([key]) => [...byName.values()].some((all) => all[0]?.[key]));
  const medianOf = (name: string, key: string): number =>
    median((byName.get(name) ?? []).map((measurement) => measurement[key] ?? Number.NaN));
  const rows: string[][] = [['', ...shown.map(([, title]) => title), 'runs']];
  for (const [name, all] of byName) {
    const cells = shown.map(([key]) => number(medianOf(name, key)));
    rows.push([name, ...cells, String(all.length)]);
  }
  if (byName.has('twinlog')) {
    for (const name of byName.keys()) {
      if (name === 'twinlog') continue;
      const cells = shown.map(([key, , better]) => {
        const ratio = medianOf('twinlog', key) / medianOf(name, key);
        return better === undefined || !Number.isFinite(ratio) ? '-' : `${number(ratio)}×`;
      });
      rows.push([`twinlog / ${name}`, ...cells, '']);
    }
  }
  return aligned(rows);
}

/** Prints every scenario's table to stdout. */
export function printReport(
  results: ReadonlyMap<string, ReadonlyMap<string, readonly Measurement[]>>,
  machine: string,
): void {
  process.stdout.write(`\n${machine}; medians\n`);
  for (const [scenario, byName] of results) {
    process.stdout.write(`\n${scenario}\n${scenarioTable(byName)}\n`);
  }
}
