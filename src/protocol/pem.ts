/**
 * PEM text as settings hold it, made such that OpenSSL reads it.
 *
 * Kafka takes PEM blocks in one line, with spaces where line ends belong; OpenSSL does not. Blocks
 * with headers of their own (old encrypted keys) are left as they are.
 */

const BLOCK = /-----BEGIN ([A-Z0-9 ]+)-----([A-Za-z0-9+/=\s]*?)-----END \1-----\s*/g;
const COLUMNS = 64;

/** The text with every block in lines. */
export function normalPem(text: string): string {
  return text.replace(BLOCK, (_all, label: string, body: string) => {
    const base64 = body.replace(/\s+/g, '');
    const lines = base64.match(new RegExp(`.{1,${COLUMNS}}`, 'g')) ?? [];
    return `-----BEGIN ${label}-----\n${lines.join('\n')}\n-----END ${label}-----\n`;
  });
}
