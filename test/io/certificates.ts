/**
 * Certificates for tests of TLS: an authority, and what it signs, as PEM files in a directory.
 *
 * Made with the openssl command. Server certificates name 127.0.0.1 and localhost. Each identity
 * has a `NAME.keystore.pem` with key and chain, as Apache Kafka wants them.
 */
import { execFileSync } from 'node:child_process';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';

const EC_KEY = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:P-256', '-nodes'];
const DAYS = ['-days', '30'];

function openssl(...args: readonly string[]): void {
  execFileSync('openssl', args, { stdio: ['ignore', 'ignore', 'pipe'] });
}

/** A certificate that the authority signed, with its key. */
export interface Identity {
  readonly certificateChain: string;
  readonly key: string;
  /** File with both. */
  readonly keystore: string;
}

/** See the file header. */
export class CertificateAuthority {
  readonly #directory: string;
  /** File with the authority's certificate. */
  readonly file: string;
  readonly certificate: string;

  /** Makes a new one in the directory. */
  constructor(directory: string, name = 'ca') {
    mkdirSync(directory, { recursive: true });
    this.#directory = directory;
    this.file = this.#path(`${name}.pem`);
    const key = this.#path(`${name}.key`);
    const subject = ['-subj', `/CN=${name}`];
    openssl('req', '-x509', ...EC_KEY, ...DAYS, ...subject, '-keyout', key, '-out', this.file);
    writeFileSync(this.#path('ca.keyfile'), key);
    this.certificate = readFileSync(this.file, 'utf8');
  }

  #path(name: string): string {
    return join(this.#directory, name);
  }

  /** Signs a certificate for `subject`, such as `/O=Org/CN=alice`. */
  issue(name: string, subject: string, hosts = 'IP:127.0.0.1,DNS:localhost'): Identity {
    const [key, request, certificate] = ['key', 'csr', 'crt'].map((end) =>
      this.#path(`${name}.${end}`),
    ) as [string, string, string];
    const extensions = this.#path(`${name}.ext`);
    writeFileSync(extensions, `subjectAltName=${hosts}\n`);
    openssl('req', '-new', ...EC_KEY, '-subj', subject, '-keyout', key, '-out', request);
    const authority = ['-CA', this.file, '-CAkey', readFileSync(this.#path('ca.keyfile'), 'utf8')];
    const signed = ['-extfile', extensions, '-in', request, '-out', certificate];
    openssl('x509', '-req', ...DAYS, ...authority, '-CAcreateserial', ...signed);
    const chain = readFileSync(certificate, 'utf8') + this.certificate;
    const keystore = this.#path(`${name}.keystore.pem`);
    const keyText = readFileSync(key, 'utf8');
    writeFileSync(keystore, keyText + chain);
    return { certificateChain: chain, key: keyText, keystore };
  }
}
