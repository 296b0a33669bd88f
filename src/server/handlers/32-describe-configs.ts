/**
 * DescribeConfigs: the settings of topics and brokers, with where each value comes from.
 *
 * `mirror.name` is never shown (rule O2), secrets never have a value. Mirror settings are a
 * resource type of their own (64, rule O1). In an Apache Kafka cluster there are overrides that we
 * know nothing of: they are shown without a type, those of brokers without their value, which may
 * be a secret.
 */
import { ConfigResourceType, MIRROR_NAME_CONFIG } from '../../metadata/image.ts';
import { mirrorSettingDefinitions } from '../../mirror/settings.ts';
import { errors } from '../../protocol/errors.ts';
import {
  DescribeConfigsRequest,
  DescribeConfigsResponse,
} from '../../protocol/messages/32-describe-configs.ts';
import type { EncodableOf } from '../../protocol/schema.ts';
import { apiHandler, type BrokerServices } from '../api-handler.ts';
import { brokerConfigDefinitions } from '../broker-config.ts';
import { type ConfigDefinition, configTypes } from '../config-definition.ts';
import { topicConfigDefinitions } from '../topic-config.ts';

type Result = EncodableOf<typeof DescribeConfigsResponse>['results'][number];
type Config = Result['configs'][number];
type Resource = DescribeConfigsRequest['resources'][number];

/** Where a value comes from (KIP-226). */
const ConfigSource = {
  topic: 1,
  broker: 2,
  brokerDefault: 3,
  staticBroker: 4,
  default: 5,
  clientMetrics: 7,
  group: 8,
  mirror: 1,
} as const;
/** The code of a config whose type is not known. */
const UNKNOWN_TYPE = 0;
/** The broker resource whose settings hold for every broker. */
const EVERY_BROKER = '';

function configOf(
  definition: ConfigDefinition,
  value: string | null,
  source: number,
  request: DescribeConfigsRequest,
  readOnly = false,
): Config {
  const isSensitive = definition.type === 'password';
  const shown = isSensitive ? null : value;
  return {
    name: definition.name,
    value: shown,
    readOnly,
    configSource: source,
    isSensitive,
    synonyms: request.includeSynonyms ? [{ name: definition.name, value: shown, source }] : [],
    configType: configTypes[definition.type],
    documentation: request.includeDocumentation ? definition.doc : null,
  };
}

function topicConfigs(
  { metadata, config }: BrokerServices,
  topic: string,
  request: DescribeConfigsRequest,
): Config[] | undefined {
  if (!metadata.image.topicsByName.has(topic)) return undefined;
  const overrides = metadata.image.configs(ConfigResourceType.TOPIC, topic);
  const known = topicConfigDefinitions.map((definition) => {
    const override = overrides.get(definition.name);
    if (override !== undefined) return configOf(definition, override, ConfigSource.topic, request);
    const synonym = definition.brokerSynonym;
    const isStatic = synonym !== undefined && config.isExplicit(synonym);
    const source = isStatic ? ConfigSource.staticBroker : ConfigSource.default;
    return configOf(definition, config.topicDefault(definition.name), source, request);
  });
  const foreign = foreignConfigs(overrides, topicConfigDefinitions, ConfigSource.topic, request);
  return [...known, ...foreign.filter(({ name }) => name !== MIRROR_NAME_CONFIG)];
}

/** Overrides without a definition of ours. */
function foreignConfigs(
  overrides: ReadonlyMap<string, string>,
  definitions: readonly ConfigDefinition[],
  source: number,
  request: DescribeConfigsRequest,
  isSensitive = false,
): Config[] {
  const ours = new Set(definitions.map(({ name }) => name));
  return [...overrides]
    .filter(([name]) => !ours.has(name))
    .map(([name, value]) => {
      const shown = isSensitive ? null : value;
      return {
        name,
        value: shown,
        readOnly: false,
        configSource: source,
        isSensitive,
        synonyms: request.includeSynonyms ? [{ name, value: shown, source }] : [],
        configType: UNKNOWN_TYPE,
        documentation: null,
      };
    });
}

function brokerConfigs(
  { brokerId, config, metadata }: BrokerServices,
  name: string,
  request: DescribeConfigsRequest,
): Config[] | undefined {
  const shared = metadata.image.configs(ConfigResourceType.BROKER, EVERY_BROKER);
  const own = metadata.image.configs(ConfigResourceType.BROKER, String(brokerId));
  if (name !== EVERY_BROKER && name !== String(brokerId)) return undefined;
  const known = brokerConfigDefinitions.flatMap((definition) => {
    const show = (value: string | null, source: number): Config =>
      configOf(definition, value, source, request, definition.dynamic !== true);
    const ofAll = shared.get(definition.name);
    if (name === EVERY_BROKER) {
      return ofAll === undefined ? [] : [show(ofAll, ConfigSource.brokerDefault)];
    }
    const ofThis = own.get(definition.name);
    if (ofThis !== undefined) return [show(ofThis, ConfigSource.broker)];
    if (ofAll !== undefined) return [show(ofAll, ConfigSource.brokerDefault)];
    const isStatic = config.isExplicit(definition.name);
    const source = isStatic ? ConfigSource.staticBroker : ConfigSource.default;
    return [show(config.value(definition.name), source)];
  });
  const foreign = (overrides: ReadonlyMap<string, string>, source: number): Config[] =>
    foreignConfigs(overrides, brokerConfigDefinitions, source, request, true);
  const ofAll = foreign(shared, ConfigSource.brokerDefault);
  if (name === EVERY_BROKER) return [...known, ...ofAll];
  const ofThis = foreign(own, ConfigSource.broker);
  const hidden = new Set(ofThis.map((each) => each.name));
  return [...known, ...ofThis, ...ofAll.filter((each) => !hidden.has(each.name))];
}

function mirrorConfigs(
  { metadata }: BrokerServices,
  mirror: string,
  request: DescribeConfigsRequest,
): Config[] | undefined {
  const settings = metadata.image.configs(ConfigResourceType.MIRROR, mirror);
  if (settings.size === 0) return undefined;
  return mirrorSettingDefinitions.map((definition) => {
    const value = settings.get(definition.name);
    const source = value === undefined ? ConfigSource.default : ConfigSource.mirror;
    return configOf(definition, value ?? definition.default, source, request);
  });
}

/** Resources of which only the overrides are known here. */
function overridesOf(
  { metadata }: BrokerServices,
  { resourceType, resourceName }: Resource,
  source: number,
  request: DescribeConfigsRequest,
): Config[] {
  return foreignConfigs(metadata.image.configs(resourceType, resourceName), [], source, request);
}

function describe(
  services: BrokerServices,
  resource: Resource,
  request: DescribeConfigsRequest,
): Result {
  const { resourceType, resourceName } = resource;
  const answer = { resourceType, resourceName };
  const fail = (errorCode: number, errorMessage: string): Result => ({
    ...answer,
    errorCode,
    errorMessage,
    configs: [],
  });
  let configs: Config[] | undefined;
  let missing = errors.UNKNOWN_TOPIC_OR_PARTITION.code as number;
  switch (resourceType) {
    case ConfigResourceType.TOPIC:
      configs = topicConfigs(services, resourceName, request);
      break;
    case ConfigResourceType.BROKER:
      configs = brokerConfigs(services, resourceName, request);
      missing = errors.INVALID_REQUEST.code;
      break;
    case ConfigResourceType.MIRROR:
      configs = mirrorConfigs(services, resourceName, request);
      missing = errors.INVALID_REQUEST.code;
      break;
    case ConfigResourceType.GROUP:
      configs = overridesOf(services, resource, ConfigSource.group, request);
      break;
    case ConfigResourceType.CLIENT_METRICS:
      configs = overridesOf(services, resource, ConfigSource.clientMetrics, request);
      break;
    default:
      return fail(
        errors.INVALID_REQUEST.code,
        `Resources of type ${resourceType} have no configs here.`,
      );
  }
  if (configs === undefined) return fail(missing, `There is no ${resourceName} here.`);
  const keys = resource.configurationKeys;
  const shown = keys === null ? configs : configs.filter(({ name }) => keys.includes(name));
  return { ...answer, errorCode: errors.NONE.code, errorMessage: null, configs: shown };
}

/** API 32. */
export const describeConfigs = apiHandler({
  request: DescribeConfigsRequest,
  response: DescribeConfigsResponse,
  versions: '1-4',
  handle: (services, request) => ({
    throttleTimeMs: 0,
    results: request.resources.map((resource) => describe(services, resource, request)),
  }),
});
