/**
 * What a mirror's drivers do otherwise in a cluster that this broker is a guest of.
 *
 * Given to the mirror manager by the composition root. Topics have ids of their own, the source's
 * is in their row (G12), producer ids are marked by source (G20), a stop ends settled and is handed
 * over (G24), and where the source ended mirroring from here is read from its own rows (G22).
 */
import type { Uuid } from '../base/uuid.ts';
import type { Runtime } from '../io/runtime.ts';
import { MirrorFailure } from '../mirror/causes.ts';
import type { ClosingRole, MirrorRole } from '../mirror/driver-context.ts';
import {
  guestMapping,
  guestSourceId,
  type ProducerIdMapping,
} from '../mirror/producer-id-mapping.ts';
import { parseMirrorSettings } from '../mirror/settings.ts';
import { OpenTransactions } from '../protocol/messages/12792-remove-topics-from-mirror.ts';
import type { JobStore } from './jobs/job-ports.ts';
import { PeerMirrorState } from './state/peer-rows.ts';

/** What a {@link GuestMirrorRole} looks at. */
export interface GuestMirrorRoleOptions {
  readonly store: Pick<JobStore, 'settings' | 'topic'>;
  /** This cluster's id. */
  readonly clusterId: string;
}

/** See the file header. */
export class GuestMirrorRole implements MirrorRole {
  readonly topicIdentity = 'own';
  readonly handover = true;
  readonly closing: ClosingRole = {
    isWanted: (topic) => {
      const row = this.#options.store.topic(topic);
      return row?.removed === true && row.openTransactions === OpenTransactions.CLOSE;
    },
    sourceIdOf: (mirror, producerId) =>
      guestSourceId(this.#settings(mirror).producerIdTag, producerId),
    closedAtSource: (mirror, topic, partition) =>
      this.#peer(mirror).closedTransactions(topic, partition, this.sourceTopicIdOf(topic)),
  };
  readonly #runtime: Runtime;
  readonly #options: GuestMirrorRoleOptions;
  /** By mirror, with the settings that it was made for. */
  readonly #peers = new Map<string, { readonly made: unknown; readonly peer: PeerMirrorState }>();

  constructor(runtime: Runtime, options: GuestMirrorRoleOptions) {
    this.#runtime = runtime;
    this.#options = options;
  }

  producerIds(mirror: string): ProducerIdMapping {
    return guestMapping(this.#settings(mirror).producerIdTag);
  }

  sourceTopicIdOf(topic: string): Uuid | undefined {
    return this.#options.store.topic(topic)?.sourceTopicId;
  }

  peerLastMirroredOffset(
    mirror: string,
    topic: string,
    partition: number,
  ): Promise<number | 'none'> {
    const sourceTopicId = this.sourceTopicIdOf(topic);
    return this.#peer(mirror).lastMirroredOffset(topic, partition, sourceTopicId);
  }

  takenFrom(topic: string, partition: number): number | undefined {
    return this.#options.store.topic(topic)?.takeoverOffsets?.[partition];
  }

  #peer(mirror: string): PeerMirrorState {
    const { configs } = this.#settings(mirror);
    const known = this.#peers.get(mirror);
    if (known?.made === configs) return known.peer;
    const { clusterId } = this.#options;
    const peer = new PeerMirrorState(this.#runtime, parseMirrorSettings(configs), clusterId);
    this.#peers.set(mirror, { made: configs, peer });
    return peer;
  }

  #settings(mirror: string) {
    const settings = this.#options.store.settings(mirror);
    if (settings !== undefined) return settings;
    throw new MirrorFailure('DESTINATION_BUSY', `mirror ${mirror} has no settings`);
  }
}
