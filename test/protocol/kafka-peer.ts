/**
 * The broker's end of a connection, played by a test frame by frame.
 */
import assert from 'node:assert/strict';
import { ByteReader } from '../../src/base/bytes.ts';
import type { CloseReason, Connection, ConnectionOwner, Network } from '../../src/io/runtime.ts';
import { codec } from '../../src/protocol/codec.ts';
import { encodeResponseFrame } from '../../src/protocol/frame.ts';
import { MetadataResponse } from '../../src/protocol/messages/03-metadata.ts';
import { ApiVersionsResponse } from '../../src/protocol/messages/18-api-versions.ts';
import { type RequestHeader, readRequestHeader } from '../../src/protocol/request-header.ts';

type Api = [apiKey: number, minVersion: number, maxVersion: number];

/** Collects requests, sends what the test says. */
export class Peer implements Connection {
  readonly remoteAddress = 'broker';
  readonly localPort = 1;
  readonly requests: RequestHeader[] = [];
  /** Highest ApiVersions version it knows; above, it answers as Kafka does. */
  apiVersionsMax = 4;
  apis: Api[] = [
    [3, 0, 9],
    [18, 0, 4],
  ];
  /** Finalised features, told from ApiVersions version 3 on. */
  features: { name: string; maxVersionLevel: number; minVersionLevel: number }[] = [];
  /** Supported features, told likewise. */
  supported: { name: string; minVersion: number; maxVersion: number }[] = [];
  /** Answers a request of any other API; undefined: not yet. */
  onRequest: ((header: RequestHeader, body: ByteReader) => Uint8Array[] | undefined) | undefined;
  /** Set: ApiVersions is not answered. */
  silent = false;
  /** Metadata is answered by itself. */
  answersMetadata = false;
  clusterId = 'c';
  owner: ConnectionOwner | undefined;
  isClosed = false;

  start(owner: ConnectionOwner): void {
    this.owner = owner;
  }

  write(chunks: readonly Uint8Array[]): boolean {
    const frame = new Uint8Array(Buffer.concat(chunks));
    const reader = new ByteReader(frame, 4);
    const header = readRequestHeader(reader);
    this.requests.push(header);
    if (header.apiKey === 18 && !this.silent) setImmediate(() => this.#answerVersions(header));
    if (header.apiKey === 3 && this.answersMetadata) {
      setImmediate(() => this.answerMetadata(header.correlationId, header.apiVersion, 'b'));
    }
    const response = this.onRequest?.(header, reader);
    if (response !== undefined) setImmediate(() => this.send(...response));
    return true;
  }

  #answerVersions(header: RequestHeader): void {
    const known = header.apiVersion <= this.apiVersionsMax;
    const version = known ? header.apiVersion : 0;
    const apiKeys = this.apis.map(([apiKey, minVersion, maxVersion]) => ({
      apiKey,
      minVersion,
      maxVersion: apiKey === 18 ? this.apiVersionsMax : maxVersion,
    }));
    const body = {
      errorCode: known ? 0 : 35,
      apiKeys,
      finalizedFeatures: this.features,
      supportedFeatures: this.supported,
    };
    const response = codec(ApiVersionsResponse, version);
    this.send(...encodeResponseFrame(header.correlationId, response, body));
  }

  /** Hands bytes to the owner, `pieces` at a time as large as there is room for. */
  send(...chunks: Uint8Array[]): void {
    const bytes = Buffer.concat(chunks);
    for (let at = 0; at < bytes.length && !this.isClosed; ) {
      const room = this.owner?.receiveBuffer();
      assert.ok(room);
      const length = Math.min(room.length, bytes.length - at);
      room.set(bytes.subarray(at, at + length));
      at += length;
      this.owner?.received(length);
    }
  }

  answerMetadata(correlationId: number, version: number, host: string): void {
    const body = {
      brokers: [{ nodeId: 1, host, port: 9092 }],
      clusterId: this.clusterId,
      controllerId: 1,
      topics: [],
    };
    this.send(...encodeResponseFrame(correlationId, codec(MetadataResponse, version), body));
  }

  end(reason: CloseReason): void {
    this.owner?.closed(reason);
  }

  pause(): void {}
  resume(): void {}
  close(): void {
    this.isClosed = true;
  }
  queuedBytes(): number {
    return 0;
  }
}

/** A network on which every dial ends in this. */
export function networkTo(answer: Connection | CloseReason): Network {
  const refuse = (): never => {
    throw new Error('not part of this test');
  };
  return { listen: refuse, connect: async () => answer };
}
