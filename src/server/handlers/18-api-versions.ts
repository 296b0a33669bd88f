/**
 * ApiVersions: which APIs, versions and features this broker serves.
 *
 * Clients pick the highest version both sides know; nothing that is not served is listed.
 * CreateTopics 8 is served but not listed (rule A9). An unknown version of ApiVersions itself is
 * answered by the request handler.
 */

import { supportedFeatures } from '../../metadata/features.ts';
import { errors } from '../../protocol/errors.ts';
import {
  ApiVersionsRequest,
  ApiVersionsResponse,
} from '../../protocol/messages/18-api-versions.ts';
import { apiHandler } from '../api-handler.ts';

/** First version whose clients accept a feature with a minimum level of 0 (KIP-1022). */
const ZERO_MIN_LEVEL_VERSION = 4;
const SOFTWARE_NAME = /^[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?$/;

/** API 18. */
export const apiVersions = apiHandler({
  request: ApiVersionsRequest,
  response: ApiVersionsResponse,
  versions: '0-4',
  handle: ({ listedApis, guest, metadata }, request, { apiVersion }) => {
    const named = apiVersion >= 3;
    const { clientSoftwareName: name, clientSoftwareVersion: version } = request;
    if (named && !(SOFTWARE_NAME.test(name) && SOFTWARE_NAME.test(version))) {
      return { errorCode: errors.INVALID_REQUEST.code, apiKeys: [] };
    }
    const { image } = metadata;
    const shown = (guest?.supportedFeatures ?? supportedFeatures).filter(
      ({ minSupportedVersion }) => minSupportedVersion > 0 || apiVersion >= ZERO_MIN_LEVEL_VERSION,
    );
    return {
      errorCode: errors.NONE.code,
      apiKeys: listedApis,
      supportedFeatures: shown.map((feature) => ({
        name: feature.name,
        minVersion: feature.minSupportedVersion,
        maxVersion: feature.maxSupportedVersion,
      })),
      finalizedFeaturesEpoch: image.offset,
      finalizedFeatures: [...image.features].map(([feature, level]) => ({
        name: feature,
        maxVersionLevel: level,
        minVersionLevel: level,
      })),
    };
  },
});
