/**
 * Decides IncrementalAlterConfigs for topics, brokers, groups and mirrors.
 *
 * Called by the embedded controller. Each resource is judged alone, with all its overrides as they
 * would be; a setting that keeps its value makes no record. `mirror.name` is refused: membership is
 * changed by the mirror APIs only (rule O2); so is the recorded identity of a source (rule O4).
 */
import { MAX_STRING_BYTES } from '../base/bytes.ts';
import { ErrorCode } from '../protocol/errors.ts';
import type {
  IncrementalAlterConfigsRequest,
  IncrementalAlterConfigsResponse,
} from '../protocol/messages/44-incremental-alter-configs.ts';
import { type ConfigValidator, validatorFor } from './config-validator.ts';
import {
  type DecideContext,
  type Decision,
  duplicates,
  isRefusal,
  type Refusal,
  refuse,
} from './decide.ts';
import {
  ConfigResourceType,
  configKey,
  type MetadataImage,
  MIRROR_NAME_CONFIG,
  SOURCE_CLUSTER_ID_CONFIG,
} from './image.ts';
import { type MetadataRecord, metadataRecord } from './record-framing.ts';

/** ConfigOperation of the request. */
export const AlterConfigOperation = { SET: 0, DELETE: 1, APPEND: 2, SUBTRACT: 3 } as const;

type Resource = IncrementalAlterConfigsRequest['resources'][number];
type Alteration = Resource['configs'][number];

/** Decides IncrementalAlterConfigs. */
export function decideIncrementalAlterConfigs(
  context: DecideContext,
  request: IncrementalAlterConfigsRequest,
): Decision<IncrementalAlterConfigsResponse> {
  const keyOf = (r: Resource): string => configKey(r.resourceType, r.resourceName);
  const twice = duplicates(request.resources.map(keyOf));
  const answered = new Set<string>();
  const records: MetadataRecord[] = [];
  const responses: IncrementalAlterConfigsResponse['responses'] = [];
  for (const resource of request.resources) {
    const key = keyOf(resource);
    if (answered.has(key)) continue;
    answered.add(key);
    const result = twice.has(key)
      ? refuse(ErrorCode.INVALID_REQUEST, 'The resource occurs twice in the request.')
      : alterResource(context, resource);
    if (!isRefusal(result)) records.push(...result);
    responses.push({
      errorCode: isRefusal(result) ? result.error : 0,
      errorMessage: isRefusal(result) ? result.message : null,
      resourceType: resource.resourceType,
      resourceName: resource.resourceName,
    });
  }
  return {
    records: request.validateOnly ? [] : records,
    response: { throttleTimeMs: 0, responses },
  };
}

function alterResource(context: DecideContext, resource: Resource): MetadataRecord[] | Refusal {
  const { resourceType, resourceName } = resource;
  const validator = validatorFor(context.validators, resourceType);
  if (validator === undefined) {
    const message = `Resources of type ${resourceType} have no configs that can be altered here.`;
    return refuse(ErrorCode.INVALID_REQUEST, message);
  }
  const missing = resourceProblem(context.image, resourceType, resourceName);
  if (missing !== undefined) return missing;
  const repeated = duplicates(resource.configs.map((config) => config.name));
  for (const name of repeated) {
    return refuse(ErrorCode.INVALID_REQUEST, `The config ${name} occurs twice.`);
  }
  const before = context.image.configs(resourceType, resourceName);
  const after = new Map(before);
  for (const alteration of resource.configs) {
    const problem = applyAlteration(after, alteration, resourceType, validator);
    if (problem !== undefined) return problem;
  }
  const tooLong = [...after].find(([, value]) => Buffer.byteLength(value) > MAX_STRING_BYTES);
  if (tooLong !== undefined) {
    const message = `The value of ${tooLong[0]} would be longer than ${MAX_STRING_BYTES} bytes.`;
    return refuse(ErrorCode.INVALID_CONFIG, message);
  }
  const visible = new Map(after);
  if (resourceType === ConfigResourceType.TOPIC) visible.delete(MIRROR_NAME_CONFIG);
  const problem = validator.check(visible);
  if (problem !== undefined) return refuse(ErrorCode.INVALID_CONFIG, problem);
  return resource.configs
    .filter(({ name }) => before.get(name) !== after.get(name))
    .map(({ name }) =>
      metadataRecord('ConfigRecord', {
        resourceType,
        resourceName,
        name,
        value: after.get(name) ?? null,
      }),
    );
}

function applyAlteration(
  configs: Map<string, string>,
  alteration: Alteration,
  resourceType: number,
  validator: ConfigValidator,
): Refusal | undefined {
  const { name, configOperation, value } = alteration;
  if (resourceType === ConfigResourceType.TOPIC && name === MIRROR_NAME_CONFIG) {
    return refuse(
      ErrorCode.INVALID_REQUEST,
      `The config ${name} is internal: add the topic to, or remove it from, a mirror instead.`,
    );
  }
  if (resourceType === ConfigResourceType.MIRROR && name === SOURCE_CLUSTER_ID_CONFIG) {
    return refuse(
      ErrorCode.INVALID_REQUEST,
      `The config ${name} is set by the broker alone: for another source create another mirror.`,
    );
  }
  if (configOperation === AlterConfigOperation.DELETE) {
    configs.delete(name);
    return undefined;
  }
  if (value === null) {
    return refuse(ErrorCode.INVALID_REQUEST, `The config ${name} has no value.`);
  }
  if (configOperation === AlterConfigOperation.SET) {
    configs.set(name, value);
    return undefined;
  }
  const { APPEND, SUBTRACT } = AlterConfigOperation;
  if (configOperation !== APPEND && configOperation !== SUBTRACT) {
    const message = `Unknown operation ${configOperation} for the config ${name}.`;
    return refuse(ErrorCode.INVALID_REQUEST, message);
  }
  const listDefault = validator.listDefault(name);
  if (listDefault === undefined) {
    return refuse(
      ErrorCode.INVALID_CONFIG,
      `The config ${name} is not a list: it cannot be appended to or subtracted from.`,
    );
  }
  const current = configs.get(name) ?? listDefault;
  configs.set(name, alterList(current, value, configOperation === APPEND));
  return undefined;
}

function alterList(current: string, change: string, append: boolean): string {
  const split = (text: string): string[] => (text === '' ? [] : text.split(','));
  const elements = split(current);
  const changes = split(change);
  if (!append) return elements.filter((element) => !changes.includes(element)).join(',');
  return [...elements, ...changes.filter((element) => !elements.includes(element))].join(',');
}

function resourceProblem(image: MetadataImage, type: number, name: string): Refusal | undefined {
  switch (type) {
    case ConfigResourceType.TOPIC:
      if (image.topicsByName.has(name)) return undefined;
      return refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, `There is no topic '${name}'.`);
    case ConfigResourceType.BROKER:
      return brokerProblem(image, name);
    case ConfigResourceType.MIRROR:
      if (image.configs(type, name).size > 0) return undefined;
      return refuse(ErrorCode.RESOURCE_NOT_FOUND, `There is no mirror '${name}'.`);
    default:
      if (name !== '') return undefined;
      return refuse(ErrorCode.INVALID_REQUEST, 'There is no default for groups.');
  }
}

/** The empty name stands for the defaults of all brokers. */
function brokerProblem(image: MetadataImage, name: string): Refusal | undefined {
  if (name === '') return undefined;
  if (!/^\d{1,10}$/.test(name)) {
    return refuse(ErrorCode.INVALID_REQUEST, `'${name}' is not a broker id.`);
  }
  if (image.brokers.has(Number(name))) return undefined;
  return refuse(ErrorCode.BROKER_ID_NOT_REGISTERED, `Broker ${name} is not registered.`);
}
