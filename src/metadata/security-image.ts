/**
 * The part of the image that says who has SCRAM credentials, and which client quotas are set.
 *
 * Made by `image-delta.ts` record by record; read by the handlers that show it. Secrets are not
 * kept: nobody is authenticated by them here. Invariant: nothing reachable from an image changes.
 */
import type { MetadataRecord } from './record-framing.ts';
import type { ClientQuotaRecord } from './records/security-records.ts';

/** A client quota's settings. */
export interface ClientQuota {
  /** Whom it is for, by entity type (`user`, `client-id`, `ip`); null is that type's default. */
  readonly entity: ReadonlyMap<string, string | null>;
  /** By name, such as `producer_byte_rate`. */
  readonly values: ReadonlyMap<string, number>;
}

/** See the file header. */
export interface SecurityImage {
  /** Iterations by mechanism (1: SCRAM-SHA-256, 2: SCRAM-SHA-512), by user. */
  readonly scramCredentials: ReadonlyMap<string, ReadonlyMap<number, number>>;
  /** By a key made of the entity. */
  readonly clientQuotas: ReadonlyMap<string, ClientQuota>;
}

/** The image of a cluster without any. */
export const NO_SECURITY: SecurityImage = { scramCredentials: new Map(), clientQuotas: new Map() };

/** Order does not matter in an entity. */
function entityKey(entity: ReadonlyMap<string, string | null>): string {
  return JSON.stringify([...entity].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** Makes the next image from records; each map is copied at most once. */
export class SecurityBuilder {
  readonly #previous: SecurityImage;
  #scramCredentials: Map<string, ReadonlyMap<number, number>> | undefined;
  #clientQuotas: Map<string, ClientQuota> | undefined;

  constructor(previous: SecurityImage) {
    this.#previous = previous;
  }

  /** Records about anything else change nothing. */
  apply(record: MetadataRecord): void {
    switch (record.type) {
      case 'UserScramCredentialRecord':
        this.#changeCredential(record.value.name, record.value.mechanism, record.value.iterations);
        break;
      case 'RemoveUserScramCredentialRecord':
        this.#changeCredential(record.value.name, record.value.mechanism, undefined);
        break;
      case 'ClientQuotaRecord':
        this.#changeQuota(record.value);
        break;
      default:
        break;
    }
  }

  build(): SecurityImage {
    if (this.#scramCredentials === undefined && this.#clientQuotas === undefined) {
      return this.#previous;
    }
    return {
      scramCredentials: this.#scramCredentials ?? this.#previous.scramCredentials,
      clientQuotas: this.#clientQuotas ?? this.#previous.clientQuotas,
    };
  }

  #changeCredential(user: string, mechanism: number, iterations: number | undefined): void {
    this.#scramCredentials ??= new Map(this.#previous.scramCredentials);
    const ofUser = new Map(this.#scramCredentials.get(user));
    if (iterations === undefined) ofUser.delete(mechanism);
    else ofUser.set(mechanism, iterations);
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
