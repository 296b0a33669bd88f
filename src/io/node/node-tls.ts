/**
 * TLS behind the Network port: what `node-network.ts` does when TLS options are given.
 *
 * Invariants: a connection is given out only after its handshake, certificates checked as the
 * options say; one that fails to come up is an answer to who dialled, and nobody's connection at a
 * listener. Keys and certificates are PEM; nothing of them gets into a message.
 */
import { X509Certificate } from 'node:crypto';
import { isIP, type Server, type Socket } from 'node:net';
import tls from 'node:tls';
import type { Logger } from '../../base/logger.ts';
import type {
  CloseReason,
  Connection,
  TlsClientOptions,
  TlsIdentity,
  TlsServerOptions,
} from '../runtime.ts';
import { closeReason, NodeConnection } from './node-connection.ts';

/** How long an accepted connection may take for its handshake, in ms. */
const ACCEPT_HANDSHAKE_MS = 10_000;
/** The object identifier of e-mail addresses in names, for which RFC 2253 has no word. */
const EMAIL_OID = '1.2.840.113549.1.9.1';
/** What the log says, whatever is wrong with it. */
const BAD_CERTIFICATE = 'certificate of a client is not accepted';
const IA5_STRING = 0x16;
const MAX_SHORT_LENGTH = 127;

function identityOptions(identity: TlsIdentity | undefined): tls.SecureContextOptions {
  if (identity === undefined) return {};
  const { certificateChain, key, keyPassword } = identity;
  const passphrase = keyPassword === undefined ? {} : { passphrase: keyPassword };
  return { cert: certificateChain, key, ...passphrase };
}

function trustOptions(trusted: string | undefined): tls.SecureContextOptions {
  return trusted === undefined ? {} : { ca: trusted };
}

/** Java writes it as RFC 2253 demands of a type without a short name: its bytes, in hex. */
function emailPart(address: string): string {
  const bytes = Buffer.from(address, 'latin1');
  if (bytes.length > MAX_SHORT_LENGTH) return `emailAddress=${address}`;
  const encoded = Buffer.concat([Buffer.from([IA5_STRING, bytes.length]), bytes]);
  return `${EMAIL_OID}=#${encoded.toString('hex')}`;
}

/** A subject as RFC 2253 text, the last part first, from Node's lines in their own order. */
export function distinguishedName(lines: string): string {
  const parts = lines.split('\n').filter((line) => line !== '');
  const named = parts.map((part) => {
    const email = /^emailAddress=(.*)$/.exec(part)?.[1];
    return email === undefined ? part : emailPart(email);
  });
  return named.reverse().join(',');
}

/** The subject, as {@link distinguishedName}, of the first certificate in a PEM text. */
export function certificateSubject(pem: string): string {
  return distinguishedName(new X509Certificate(pem).subject);
}

function subjectOf(socket: tls.TLSSocket): string | undefined {
  const certificate = socket.getPeerX509Certificate();
  if (certificate === undefined || !socket.authorized) return undefined;
  return distinguishedName(certificate.subject);
}

/** What OpenSSL says beyond the place in its source, where it says something. */
interface OpenSslError extends Error {
  readonly reason?: string;
}

/** Makes a server whose connections are given to `onConnection` once they are secure. */
export function tlsServer(
  logger: Logger,
  socketOptions: object,
  options: TlsServerOptions,
  onConnection: (connection: Connection) => void,
): Server {
  const { identity, trusted, clientAuth } = options;
  const server = tls.createServer({
    ...socketOptions,
    ...identityOptions(identity),
    ...trustOptions(trusted),
    requestCert: clientAuth !== 'none',
    rejectUnauthorized: clientAuth === 'required',
    handshakeTimeout: ACCEPT_HANDSHAKE_MS,
  });
  server.on('tlsClientError', (error: OpenSslError, socket) => {
    const { remoteAddress: client, authorizationError } = socket;
    if (authorizationError) {
      // Node has closed it, and does not tell any more whose it was.
      logger.info(BAD_CERTIFICATE, { error: String(authorizationError) });
      return;
    }
    const why = error.reason ?? error.message;
    logger.info('TLS handshake of a client failed', { client, error: why });
  });
  server.on('secureConnection', (socket) => {
    const showsBad = socket.getPeerX509Certificate() !== undefined && !socket.authorized;
    if (clientAuth !== 'none' && showsBad) {
      const { remoteAddress: client, authorizationError } = socket;
      logger.info(BAD_CERTIFICATE, { client, error: String(authorizationError) });
      socket.destroy();
      return;
    }
    const subject = clientAuth === 'none' ? undefined : subjectOf(socket);
    onConnection(new NodeConnection(socket, 'copied', subject));
  });
  return server;
}

interface Dial {
  readonly host: string;
  readonly port: number;
  readonly timeoutMs: number;
  readonly socketOptions: object;
}

function openSocket({ host, port, socketOptions }: Dial, options: TlsClientOptions) {
  const { trusted, identity, checkHostName } = options;
  return tls.connect({
    ...socketOptions,
    host,
    port,
    // Whatever the environment says.
    rejectUnauthorized: true,
    ...(isIP(host) === 0 ? { servername: host } : {}),
    ...identityOptions(identity),
    ...trustOptions(trusted),
    ...(checkHostName ? {} : { checkServerIdentity: () => undefined }),
  });
}

/** Dials and shakes hands, all within the time-out. */
export function connectTls(
  dial: Dial,
  options: TlsClientOptions,
): Promise<Connection | CloseReason> {
  const peer = `${dial.host}:${dial.port}`;
  return new Promise((resolve) => {
    let socket: tls.TLSSocket;
    try {
      socket = openSocket(dial, options);
    } catch (error) {
      // Certificates or key are no PEM, or the password is not that of the key.
      const message = `${peer}: TLS cannot be set up: ${(error as Error).message}`;
      resolve({ cause: 'authentication', message });
      return;
    }
    const timer = setTimeout(() => {
      socket.destroy();
      const message = `${peer}: no TLS connection within ${dial.timeoutMs} ms`;
      resolve({ cause: 'timeout', message });
    }, dial.timeoutMs);
    const failed = (error: Error): void => {
      clearTimeout(timer);
      resolve(closeReason(error, peer));
    };
    socket.once('error', failed);
    socket.once('secureConnect', () => {
      clearTimeout(timer);
      const connection = new NodeConnection(socket as Socket, 'copied', subjectOf(socket));
      socket.off('error', failed);
      resolve(connection);
    });
  });
}
