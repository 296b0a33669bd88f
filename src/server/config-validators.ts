/**
 * What the controller may ask about settings before it writes them.
 *
 * One validator per resource type, built from the tables of topic, broker and mirror settings,
 * given to the controller by `broker.ts`. An override that passes here is safe to apply everywhere.
 */
import type { ConfigValidator, ConfigValidators } from '../metadata/config-validator.ts';
import { checkMirrorConfigs, isListSetting, mirrorSettingDefinitions } from '../mirror/settings.ts';
import { brokerConfigDefinition } from './broker-config.ts';
import { type ConfigDefinition, checkConfigValue } from './config-definition.ts';
import { checkTopicConfigs, topicConfigDefinition } from './topic-config.ts';

function listDefaultOf(definition: ConfigDefinition | undefined): string | undefined {
  return definition?.type === 'list' ? (definition.default ?? '') : undefined;
}

function checkBrokerConfigs(overrides: ReadonlyMap<string, string>): string | undefined {
  for (const [name, value] of overrides) {
    const definition = brokerConfigDefinition(name);
    if (definition === undefined) return `Unknown broker config name: ${name}.`;
    if (definition.dynamic !== true) {
      return `Broker config ${name} cannot be changed while the broker runs: set it at the start.`;
    }
    const problem = checkConfigValue(definition, value);
    if (problem !== undefined) return problem;
  }
  return undefined;
}

const groupValidator: ConfigValidator = {
  check: (overrides) => {
    const [name] = overrides.keys();
    return name === undefined ? undefined : `Unknown group config name: ${name}.`;
  },
  listDefault: () => undefined,
};

/** Validators for every resource type that has configs in the metadata log. */
export const configValidators: ConfigValidators = {
  topic: {
    check: checkTopicConfigs,
    listDefault: (name) => listDefaultOf(topicConfigDefinition(name)),
  },
  broker: {
    check: checkBrokerConfigs,
    listDefault: (name) => listDefaultOf(brokerConfigDefinition(name)),
  },
  group: groupValidator,
  mirror: {
    check: checkMirrorConfigs,
    listDefault: (name) =>
      isListSetting(name)
        ? (mirrorSettingDefinitions.find((setting) => setting.name === name)?.default ?? '')
        : undefined,
  },
};
