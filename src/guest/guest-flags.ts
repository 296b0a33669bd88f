/**
 * Sets and clears what guests say in BROKER configs of their ids (`guest-brokers.ts` names them):
 * an Apache controller keeps them, and every guest reads them in its metadata. Called by commands
 * and by guests themselves.
 */
import { ConfigResourceType } from '../metadata/image.ts';
import { errorName, errors } from '../protocol/errors.ts';
import {
  IncrementalAlterConfigsRequest,
  IncrementalAlterConfigsResponse,
} from '../protocol/messages/44-incremental-alter-configs.ts';
import type { JobController } from './jobs/job-ports.ts';

const SET = 0;
const DELETE = 1;

/** Sets or clears a flag of these guests; answers why it could not be, as a sentence. */
export async function setGuestFlag(
  controller: JobController,
  ids: readonly number[],
  name: string,
  on: boolean,
): Promise<string | undefined> {
  const change = on ? { configOperation: SET, value: 'true' } : { configOperation: DELETE };
  const config = { name, value: null, ...change };
  const { responses } = await controller.send(
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    {
      resources: ids.map((id) => ({
        resourceType: ConfigResourceType.BROKER,
        resourceName: String(id),
        configs: [config],
      })),
      validateOnly: false,
    },
  );
  const answers = new Map(responses.map((each) => [each.resourceName, each]));
  for (const id of ids) {
    const { errorCode = errors.UNKNOWN_SERVER_ERROR.code, errorMessage } =
      answers.get(String(id)) ?? {};
    if (errorCode === errors.NONE.code) continue;
    const why = `${errorName(errorCode)} ${errorMessage ?? ''}`.trim();
    return `The settings of guest ${id} cannot be changed: ${why}`;
  }
  return undefined;
}
