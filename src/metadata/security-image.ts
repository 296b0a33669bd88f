/**
 * The part of the image that says who has SCRAM credentials, who may do what, and which client
 * quotas are set.
 *
 * Made by `image-delta.ts` record by record; read by listeners, by the authorizer and by the
 * handlers that show it (never its secrets). Invariant: nothing reachable from an image changes.
 */
import type { Uuid } from '../base/uuid.ts';
import type { ScramCredential } from '../protocol/scram.ts';
import type { MetadataRecord } from './record-framing.ts';
import type {
  AccessControlEntryRecord,
  ClientQuotaRecord,
  UserScramCredentialRecord,
} from './records/security-records.ts';

/** A client quota's settings. */
export interface ClientQuota {
  /** Whom it is for, by entity type (`user`, `client-id`, `ip`); null is that type's default. */
  readonly entity: ReadonlyMap<string, string | null>;
  /** By name, such as `producer_byte_rate`. */
  readonly values: ReadonlyMap<string, number>;
}

/** Credentials by mechanism, see {@link scramCode}. */
type UserCredentials = ReadonlyMap<number, ScramCredential>;

/** See the file header. */
export interface SecurityImage {
  /** By user, then by mechanism. */
  readonly scramCredentials: ReadonlyMap<string, UserCredentials>;
  /** ACLs by their ids. */
  readonly acls: ReadonlyMap<Uuid, AccessControlEntryRecord>;
  /** By a key made of the entity. */
  readonly clientQuotas: ReadonlyMap<string, ClientQuota>;
}

/** The image of a cluster without any. */
export const NO_SECURITY: SecurityImage = {
  scramCredentials: new Map(),
  acls: new Map(),
  clientQuotas: new Map(),
};

const SCRAM_CODES: ReadonlyMap<string, number> = new Map([
  ['SCRAM-SHA-256', 1],
  ['SCRAM-SHA-512', 2],
]);

/** The code of a SCRAM mechanism in records and requests; 0: it is none. */
export function scramCode(mechanism: string): number {
  return SCRAM_CODES.get(mechanism) ?? 0;
}

/** Order does not matter in an entity. */
function entityKey(entity: ReadonlyMap<string, string | null>): string {
  return JSON.stringify([...entity].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Makes the next image from records; each map is copied at most once. */
export class SecurityBuilder {
  readonly #previous: SecurityImage;
  #scramCredentials: Map<string, UserCredentials> | undefined;
  #acls: Map<Uuid, AccessControlEntryRecord> | undefined;
  #clientQuotas: Map<string, ClientQuota> | undefined;

  constructor(previous: SecurityImage) {
    this.#previous = previous;
  }

  /** Records about anything else change nothing. */
  apply(record: MetadataRecord): void {
    switch (record.type) {
      case 'UserScramCredentialRecord':
        this.#changeCredential(record.value.name, record.value.mechanism, record.value);
        break;
      case 'RemoveUserScramCredentialRecord':
        this.#changeCredential(record.value.name, record.value.mechanism, undefined);
        break;
      case 'AccessControlEntryRecord':
        this.#changeAcls().set(record.value.id, record.value);
        break;
      case 'RemoveAccessControlEntryRecord':
        this.#changeAcls().delete(record.value.id);
        break;
      case 'ClientQuotaRecord':
        this.#changeQuota(record.value);
        break;
      default:
        break;
    }
  }

  build(): SecurityImage {
    if (!(this.#scramCredentials || this.#acls || this.#clientQuotas)) return this.#previous;
    return {
      acls: this.#acls ?? this.#previous.acls,
      scramCredentials: this.#scramCredentials ?? this.#previous.scramCredentials,
      clientQuotas: this.#clientQuotas ?? this.#previous.clientQuotas,
    };
  }

  #changeAcls(): Map<Uuid, AccessControlEntryRecord> {
    this.#acls ??= new Map(this.#previous.acls);
    return this.#acls;
  }

  #changeCredential(
    user: string,
    mechanism: number,
    credential: UserScramCredentialRecord | undefined,
  ): void {
    this.#scramCredentials ??= new Map(this.#previous.scramCredentials);
    const ofUser = new Map(this.#scramCredentials.get(user));
    if (credential === undefined) ofUser.delete(mechanism);
    else {
      // The record's bytes may lie in a buffer that is used again.
      ofUser.set(mechanism, {
        salt: new Uint8Array(credential.salt),
        storedKey: new Uint8Array(credential.storedKey),
        serverKey: new Uint8Array(credential.serverKey),
        iterations: credential.iterations,
      });
    }
    if (ofUser.size === 0) this.#scramCredentials.delete(user);
    else this.#scramCredentials.set(user, ofUser);
  }

  #changeQuota({ entity: parts, key, value, remove }: ClientQuotaRecord): void {
    this.#clientQuotas ??= new Map(this.#previous.clientQuotas);
    const entity = new Map(parts.map(({ entityType, entityName }) => [entityType, entityName]));
    const id = entityKey(entity);
    const values = new Map(this.#clientQuotas.get(id)?.values);
    if (remove) values.delete(key);
    else values.set(key, value);
    if (values.size === 0) this.#clientQuotas.delete(id);
    else this.#clientQuotas.set(id, { entity, values });
  }
}
