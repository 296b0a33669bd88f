/** Every message schema of the product, found by looking into the folders that declare them. */
import { readdirSync } from 'node:fs';
import { join } from 'node:path';
import type { Message } from '../../src/protocol/schema.ts';

const SOURCE = join(import.meta.dirname, '../../src');
const FOLDERS = ['protocol/messages', 'metadata/records', 'coordinator/records'];

function isMessage(value: unknown): value is Message {
  return typeof value === 'object' && value !== null && 'fields' in value && 'versions' in value;
}

/** All schemas, in the order of their files. */
export async function allSchemas(): Promise<Message[]> {
  const found: Message[] = [];
  for (const folder of FOLDERS) {
    for (const file of readdirSync(join(SOURCE, folder)).sort()) {
      const module: Record<string, unknown> = await import(join(SOURCE, folder, file));
      found.push(...Object.values(module).filter(isMessage));
    }
  }
  return found;
}
