/**
 * Asks a mirror's source for the configs of a topic (Y4).
 *
 * Used when a topic is added. What the source may not tell, or tells with an error, is a failure
 * with a cause: an error is not an empty set of overrides.
 */
import { ConfigResourceType } from '../../metadata/image.ts';
import { MirrorFailure } from '../../mirror/causes.ts';
import type { SourceCluster } from '../../mirror/source-cluster.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import {
  DescribeConfigsRequest,
  DescribeConfigsResponse,
} from '../../protocol/messages/32-describe-configs.ts';
import type { DescribedConfig } from './topic-settings.ts';

/** All configs of a topic as its source describes them; rejects with a {@link MirrorFailure}. */
export async function readSourceConfigs(
  source: Pick<SourceCluster, 'leader' | 'client'>,
  topic: string,
): Promise<readonly DescribedConfig[]> {
  const { address } = await source.leader(topic, 0);
  const response = await source.client.send(
    address,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    {
      resources: [
        { resourceType: ConfigResourceType.TOPIC, resourceName: topic, configurationKeys: null },
      ],
    },
  );
  const [result] = response.results;
  const code = result?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
  if (result !== undefined && code === errors.NONE.code) return result.configs;
  if (code === errors.TOPIC_AUTHORIZATION_FAILED.code) {
    const right = 'DESCRIBE_CONFIGS on the topic at the source';
    const message = `the configs of topic ${topic} may not be read: grant ${right}`;
    throw new MirrorFailure('SOURCE_AUTHORIZATION_FAILED', message);
  }
  const why = result?.errorMessage ?? errorName(code);
  throw new MirrorFailure('SOURCE_ERROR', `the configs of topic ${topic} cannot be read: ${why}`);
}
