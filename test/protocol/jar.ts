/** Reads entries of a jar (zip) file: enough of the format for Apache Kafka's jars. */
import { readFileSync } from 'node:fs';
import { inflateRawSync } from 'node:zlib';

const END_OF_DIRECTORY = 0x06054b50;
const DIRECTORY_ENTRY = 0x02014b50;
const DEFLATED = 8;

/** The contents, as text, of all entries whose name matches. */
export function readJar(path: string, name: RegExp): Map<string, string> {
  const zip = readFileSync(path);
  let end = zip.length - 22;
  while (zip.readUInt32LE(end) !== END_OF_DIRECTORY) end--;
  const entries = new Map<string, string>();
  let at = zip.readUInt32LE(end + 16);
  for (let left = zip.readUInt16LE(end + 10); left > 0; left--) {
    if (zip.readUInt32LE(at) !== DIRECTORY_ENTRY) throw new Error(`${path}: bad zip directory`);
    const nameLength = zip.readUInt16LE(at + 28);
    const entry = zip.toString('utf8', at + 46, at + 46 + nameLength);
    if (name.test(entry)) {
      const local = zip.readUInt32LE(at + 42);
      const start = local + 30 + zip.readUInt16LE(local + 26) + zip.readUInt16LE(local + 28);
      const data = zip.subarray(start, start + zip.readUInt32LE(at + 20));
      const deflated = zip.readUInt16LE(at + 10) === DEFLATED;
      entries.set(entry, (deflated ? inflateRawSync(data) : data).toString('utf8'));
    }
    at += 46 + nameLength + zip.readUInt16LE(at + 30) + zip.readUInt16LE(at + 32);
  }
  return entries;
}

/** Parses JSON in which `//` starts a comment (outside of strings). */
export function parseCommentedJson(text: string): unknown {
  return JSON.parse(
    text.replace(/"(?:[^"\\]|\\.)*"|\/\/.*/g, (part) => (part[0] === '"' ? part : '')),
  );
}
