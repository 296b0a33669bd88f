/**
 * IncrementalAlterConfigs for many topics: batched, answered per topic.
 *
 * Used by the jobs that lock, unlock and restore topics.
 */
import { ConfigResourceType } from '../../metadata/image.ts';
import { isPassing } from '../../metadata/quorum/quorum-client.ts';
import { errorName, errors } from '../../protocol/errors.ts';
import {
  IncrementalAlterConfigsRequest,
  IncrementalAlterConfigsResponse,
} from '../../protocol/messages/44-incremental-alter-configs.ts';
import type { JobController } from './job-ports.ts';
import type { ConfigChange } from './topic-settings.ts';

/** Topics in one request: their changes stay far below what a controller writes in one batch. */
export const CONFIG_BATCH = 1_000;

/** The changes of one topic. */
export interface TopicChanges {
  readonly topic: string;
  readonly changes: readonly ConfigChange[];
}

/** Sends the changes; answers why some were not made, by topic. */
export async function alterTopicConfigs(
  controller: JobController,
  wanted: readonly TopicChanges[],
): Promise<Map<string, string>> {
  const problems = new Map<string, string>();
  for (let from = 0; from < wanted.length; from += CONFIG_BATCH) {
    const batch = wanted.slice(from, from + CONFIG_BATCH);
    try {
      const response = await controller.send(
        IncrementalAlterConfigsRequest,
        IncrementalAlterConfigsResponse,
        {
          resources: batch.map(({ topic, changes }) => ({
            resourceType: ConfigResourceType.TOPIC,
            resourceName: topic,
            configs: [...changes],
          })),
          validateOnly: false,
        },
      );
      for (const { resourceName, errorCode, errorMessage } of response.responses) {
        if (errorCode === errors.NONE.code) continue;
        const why = errorMessage ?? errorName(errorCode);
        problems.set(resourceName, `its settings cannot be changed: ${why}`);
      }
    } catch (error) {
      if (!isPassing(error)) throw error;
      for (const { topic } of batch) {
        problems.set(topic, `the controller did not answer: ${error.message}`);
      }
    }
  }
  return problems;
}
