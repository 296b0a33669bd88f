/**
 * Metadata in guest mode: topics that are missing are asked of an Apache broker, never made here.
 *
 * Whether and how a topic is made on its first use is thus what the Apache brokers are configured
 * to do. `auto.create.topics.enable=false` at the guest keeps it from asking; wanted where clients
 * need rights to create topics, since the guest asks in its own name.
 */
import { present } from '../../base/assert.ts';
import { metadataHandler } from '../handlers/03-metadata.ts';

/** API 3. */
export const metadata = metadataHandler(({ guest }, names) =>
  present(guest, 'guest services').askForTopics(names),
);
