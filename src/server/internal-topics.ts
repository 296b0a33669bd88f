/**
 * The topics that the broker itself needs, made when they are first needed.
 *
 * `__consumer_offsets` comes with the first group look-up, `__mirror_state` with the first mirror
 * (rule C1). Both are compacted and never mirrored (rule O5). Creation is repeatable: a topic that
 * exists already is a success.
 */
import { GROUP_METADATA_TOPIC } from '../coordinator/group-coordinator.ts';
import type { ControllerPort } from '../metadata/controller-port.ts';
import type { MetadataLoader } from '../metadata/metadata-loader.ts';
import { MIRROR_STATE_TOPIC } from '../mirror/state-row.ts';
import { ApiKey } from '../protocol/api-keys.ts';
import { errors } from '../protocol/errors.ts';
import type {
  CreateTopicsRequest,
  CreateTopicsResponse,
} from '../protocol/messages/19-create-topics.ts';
import type { BrokerConfig } from './broker-config.ts';

/** An internal topic that is made when it is first needed. */
export type OnDemandTopic = typeof GROUP_METADATA_TOPIC | typeof MIRROR_STATE_TOPIC;

/** Whether `name` is one of the topics that {@link InternalTopics} makes. */
export function isOnDemandTopic(name: string): name is OnDemandTopic {
  return name === GROUP_METADATA_TOPIC || name === MIRROR_STATE_TOPIC;
}

const CREATE_TOPICS_VERSION = 7;
const CREATE_TIMEOUT_MS = 30_000;

/** Makes internal topics on demand. */
export class InternalTopics {
  readonly #config: BrokerConfig;
  readonly #controller: ControllerPort;
  readonly #metadata: MetadataLoader;

  constructor(config: BrokerConfig, controller: ControllerPort, metadata: MetadataLoader) {
    this.#config = config;
    this.#controller = controller;
    this.#metadata = metadata;
  }

  /** Resolves with 0 when the topic exists, else with the error that creating it met. */
  async ensure(name: OnDemandTopic): Promise<number> {
    if (this.#metadata.image.topicsByName.has(name)) return errors.NONE.code;
    const brokers = [...this.#metadata.image.brokers.values()].filter((broker) => !broker.fenced);
    if (brokers.length === 0) return errors.COORDINATOR_NOT_AVAILABLE.code;
    const request = this.#request(name, brokers.length);
    const response = (await this.#controller.forward(
      ApiKey.CreateTopics,
      CREATE_TOPICS_VERSION,
      request,
      { principal: 'User:ANONYMOUS' },
    )) as CreateTopicsResponse;
    const code = response.topics[0]?.errorCode ?? errors.UNKNOWN_SERVER_ERROR.code;
    return code === errors.TOPIC_ALREADY_EXISTS.code ? errors.NONE.code : code;
  }

  #request(name: OnDemandTopic, liveBrokers: number): CreateTopicsRequest {
    const prefix = name === GROUP_METADATA_TOPIC ? 'offsets' : 'mirror';
    const wanted = this.#config.number(`${prefix}.topic.replication.factor`);
    const configs = [
      { name: 'cleanup.policy', value: 'compact' },
      { name: 'compression.type', value: 'producer' },
      { name: 'segment.bytes', value: this.#config.text('offsets.topic.segment.bytes') },
    ];
    return {
      topics: [
        {
          name,
          numPartitions: this.#config.number(`${prefix}.topic.num.partitions`),
          replicationFactor: Math.min(wanted, liveBrokers),
          assignments: [],
          configs,
          mirrorInfo: null,
        },
      ],
      timeoutMs: CREATE_TIMEOUT_MS,
      validateOnly: false,
    };
  }
}
