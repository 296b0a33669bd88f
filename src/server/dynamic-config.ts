/**
 * Broker settings that were changed while the cluster runs: its own, else the default of all.
 *
 * As in Apache Kafka (KIP-226) both are config records of resource type BROKER; the empty name is
 * the default of all brokers.
 */
import { ConfigResourceType, type MetadataImage } from '../metadata/image.ts';

/** The dynamic value in force on a broker, or undefined when none is set. */
export function dynamicBrokerConfig(
  image: MetadataImage,
  brokerId: number,
  name: string,
): string | undefined {
  const own = image.configs(ConfigResourceType.BROKER, String(brokerId)).get(name);
  return own ?? image.configs(ConfigResourceType.BROKER, '').get(name);
}
