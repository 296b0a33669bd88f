/**
 * The port through which the controller checks configs before it writes them.
 *
 * The definitions belong to the layers that use them (topics, brokers and groups: server; mirrors:
 * mirror), so they are handed to the controller at construction.
 */
import { ConfigResourceType } from './image.ts';

/** Knows the settings of one kind of resource. */
export interface ConfigValidator {
  /** What is wrong with all overrides a resource would have, as a sentence (INVALID_CONFIG). */
  check(overrides: ReadonlyMap<string, string>): string | undefined;
  /** The default of a list setting, which values are appended to; undefined for no list. */
  listDefault(name: string): string | undefined;
}

/** Knows the settings of topics; `mirror.name` is none of them (rule O2). */
export type TopicConfigValidator = ConfigValidator;

/** One validator per kind of resource that has configs in the metadata log. */
export interface ConfigValidators {
  readonly topic: TopicConfigValidator;
  readonly broker: ConfigValidator;
  readonly group: ConfigValidator;
  readonly mirror: ConfigValidator;
}

/** The validator of a resource type, or undefined when such resources have no configs here. */
export function validatorFor(
  validators: ConfigValidators,
  resourceType: number,
): ConfigValidator | undefined {
  switch (resourceType) {
    case ConfigResourceType.TOPIC:
      return validators.topic;
    case ConfigResourceType.BROKER:
      return validators.broker;
    case ConfigResourceType.GROUP:
      return validators.group;
    case ConfigResourceType.MIRROR:
      return validators.mirror;
    default:
      return undefined;
  }
}
