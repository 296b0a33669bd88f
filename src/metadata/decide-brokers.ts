/**
 * Decides BrokerRegistration, and what a heartbeat or its absence does: fence, unfence, stop.
 *
 * Called by the embedded controller, which keeps the sessions (who was heard of when). Semantics
 * are KRaft's: a new incarnation starts fenced and leads nothing (leader −1 where it was the only
 * candidate); once caught up it is unfenced and elected again; each election is a new leader
 * epoch. The same incarnation registering again only amends its listeners and directories.
 */
import { ZERO_UUID } from '../base/uuid.ts';
import { ErrorCode } from '../protocol/errors.ts';
import type {
  BrokerRegistrationRequest,
  BrokerRegistrationResponse,
} from '../protocol/messages/62-broker-registration.ts';
import type {
  BrokerHeartbeatRequest,
  BrokerHeartbeatResponse,
} from '../protocol/messages/63-broker-heartbeat.ts';
import { type DecideContext, type Decision, isRefusal, type Refusal, refuse } from './decide.ts';
import { allPartitions, electAmongLeaderless, electWithout } from './elections.ts';
import { unsupportedLevel } from './features.ts';
import type { BrokerRegistrationImage, MetadataImage } from './image.ts';
import { type MetadataRecord, metadataRecord } from './record-framing.ts';

/** 0, or the error of a request that names a broker epoch which is not the current one. */
export function brokerEpochError(image: MetadataImage, id: number, epoch: number): number {
  const broker = image.brokers.get(id);
  if (broker === undefined) return ErrorCode.BROKER_ID_NOT_REGISTERED;
  return broker.epoch === epoch ? 0 : ErrorCode.STALE_BROKER_EPOCH;
}

/**
 * Decides BrokerRegistration. `hasSession`: the broker registered under that id was heard of within
 * the session timeout, so it may still be alive. The refusal says why, for the log.
 */
export function decideBrokerRegistration(
  context: DecideContext,
  request: BrokerRegistrationRequest,
  hasSession: boolean,
): Decision<BrokerRegistrationResponse> & { readonly refusal?: Refusal } {
  const { image } = context;
  const refusal = registrationProblem(image, request, hasSession);
  if (refusal !== undefined) {
    const response = { throttleTimeMs: 0, errorCode: refusal.error, brokerEpoch: -1 };
    return { records: [], response, refusal };
  }
  const previous = image.brokers.get(request.brokerId);
  const amends = previous?.incarnationId === request.incarnationId;
  const records: MetadataRecord[] = [];
  if (previous !== undefined && !amends && !previous.fenced) {
    records.push(...electWithout(image, previous.id));
  }
  const brokerEpoch = amends && previous !== undefined ? previous.epoch : context.nextOffset;
  records.push(
    metadataRecord('RegisterBrokerRecord', {
      brokerId: request.brokerId,
      incarnationId: request.incarnationId,
      brokerEpoch,
      endPoints: request.listeners,
      features: request.features,
      rack: request.rack,
      fenced: amends ? (previous?.fenced ?? true) : true,
      inControlledShutdown: amends ? (previous?.inControlledShutdown ?? false) : false,
      logDirs: request.logDirs,
    }),
  );
  return { records, response: { throttleTimeMs: 0, errorCode: 0, brokerEpoch } };
}

function registrationProblem(
  image: MetadataImage,
  request: BrokerRegistrationRequest,
  hasSession: boolean,
): Refusal | undefined {
  if (request.clusterId !== image.clusterId) {
    const message = `Cluster id ${request.clusterId} is not that of this cluster.`;
    return refuse(ErrorCode.INCONSISTENT_CLUSTER_ID, message);
  }
  if (request.brokerId < 0 || request.listeners.length === 0) {
    return refuse(ErrorCode.INVALID_REGISTRATION, 'A broker needs an id and a listener.');
  }
  if (request.isMigratingZkBroker || request.incarnationId === ZERO_UUID) {
    return refuse(ErrorCode.INVALID_REGISTRATION, 'A broker needs an incarnation id.');
  }
  if (request.logDirs.length === 0) {
    return refuse(ErrorCode.INVALID_REGISTRATION, 'A broker needs a log directory id.');
  }
  const previous = image.brokers.get(request.brokerId);
  if (previous !== undefined && previous.incarnationId !== request.incarnationId && hasSession) {
    return refuse(
      ErrorCode.DUPLICATE_BROKER_REGISTRATION,
      `Broker ${request.brokerId} is registered, and was heard of within its session timeout.`,
    );
  }
  return directoryProblem(image, request) ?? featureProblem(image, request);
}

function directoryProblem(
  image: MetadataImage,
  request: BrokerRegistrationRequest,
): Refusal | undefined {
  for (const broker of image.brokers.values()) {
    if (broker.id === request.brokerId) continue;
    const shared = request.logDirs.find((directory) => broker.logDirs.includes(directory));
    if (shared === undefined) continue;
    const message = `Log directory ${shared} belongs to broker ${broker.id}.`;
    return refuse(ErrorCode.INVALID_REGISTRATION, message);
  }
  return undefined;
}

function featureProblem(
  image: MetadataImage,
  request: BrokerRegistrationRequest,
): Refusal | undefined {
  const found = unsupportedLevel(image.features, request.features);
  if (found === undefined) return undefined;
  const { name, level, min, max } = found;
  const message = `The cluster runs ${name} ${level}; the broker supports ${min} to ${max}.`;
  return refuse(ErrorCode.UNSUPPORTED_VERSION, message);
}

/** What the controller remembers of a broker beyond the metadata; see {@link decideHeartbeat}. */
export interface HeartbeatState {
  /** Metadata offset from which on everyone else must have seen that the broker is stopping. */
  readonly shutdownOffset: number | undefined;
  /** Lowest metadata offset that the other active brokers have reported. */
  readonly othersOffset: number;
}

type HeartbeatDecision = Decision<BrokerHeartbeatResponse>;

/** Decides a heartbeat. */
export function decideHeartbeat(
  context: DecideContext,
  request: BrokerHeartbeatRequest,
  state: HeartbeatState,
): HeartbeatDecision {
  const broker = heartbeatBroker(context.image, request);
  if (isRefusal(broker)) {
    const response = { ...heartbeatResponse(false, true, false), errorCode: broker.error };
    return { records: [], response };
  }
  const caughtUp = request.currentMetadataOffset >= broker.epoch;
  if (broker.fenced) {
    if (request.wantShutDown) {
      return { records: [], response: heartbeatResponse(caughtUp, true, true) };
    }
    if (request.wantFence || !caughtUp) {
      return { records: [], response: heartbeatResponse(caughtUp, true, false) };
    }
    const records = decideUnfence(context.image, broker);
    return { records, response: heartbeatResponse(true, false, false) };
  }
  if (request.wantFence) {
    const records = decideFence(context.image, broker.id);
    return { records, response: heartbeatResponse(caughtUp, true, false) };
  }
  if (request.wantShutDown) return decideShutdown(context.image, broker, caughtUp, state);
  return { records: [], response: heartbeatResponse(caughtUp, false, false) };
}

function heartbeatBroker(
  image: MetadataImage,
  request: BrokerHeartbeatRequest,
): BrokerRegistrationImage | Refusal {
  const { brokerId, brokerEpoch } = request;
  const error = brokerEpochError(image, brokerId, brokerEpoch);
  const broker = image.brokers.get(brokerId);
  if (error !== 0 || broker === undefined) {
    return refuse(error, `Broker ${brokerId} has no registration of epoch ${brokerEpoch}.`);
  }
  return broker;
}

function heartbeatResponse(
  isCaughtUp: boolean,
  isFenced: boolean,
  shouldShutDown: boolean,
): BrokerHeartbeatResponse {
  return { throttleTimeMs: 0, errorCode: 0, isCaughtUp, isFenced, shouldShutDown };
}

/** Leaderships first go elsewhere; the broker may stop when the others know. */
function decideShutdown(
  image: MetadataImage,
  broker: BrokerRegistrationImage,
  caughtUp: boolean,
  state: HeartbeatState,
): HeartbeatDecision {
  if (!broker.inControlledShutdown) {
    const records = [
      metadataRecord('BrokerRegistrationChangeRecord', {
        brokerId: broker.id,
        brokerEpoch: broker.epoch,
        inControlledShutdown: 1,
      }),
      ...electWithout(image, broker.id),
    ];
    return { records, response: heartbeatResponse(caughtUp, false, false) };
  }
  const led = [...allPartitions(image)].some((partition) => partition.leader === broker.id);
  const known = state.shutdownOffset !== undefined && state.othersOffset >= state.shutdownOffset;
  if (led || !known) {
    return { records: [], response: heartbeatResponse(caughtUp, false, false) };
  }
  const records = decideFence(image, broker.id);
  return { records, response: heartbeatResponse(caughtUp, true, true) };
}

/** The records that fence a registered broker and move what it leads. */
export function decideFence(image: MetadataImage, brokerId: number): MetadataRecord[] {
  const broker = image.brokers.get(brokerId);
  if (broker === undefined || broker.fenced) return [];
  return [
    ...electWithout(image, brokerId),
    metadataRecord('BrokerRegistrationChangeRecord', {
      brokerId,
      brokerEpoch: broker.epoch,
      fenced: 1,
    }),
  ];
}

function decideUnfence(image: MetadataImage, broker: BrokerRegistrationImage): MetadataRecord[] {
  return [
    metadataRecord('BrokerRegistrationChangeRecord', {
      brokerId: broker.id,
      brokerEpoch: broker.epoch,
      fenced: -1,
    }),
    ...electAmongLeaderless(image, broker.id),
  ];
}
