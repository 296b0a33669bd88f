/**
 * DefaultPrincipalData, the serialised form of a principal.
 *
 * Goes into Envelope requests, behind an int16 version.
 */
import { bool, type MessageOf, message, string } from '../schema.ts';

/** Version 0. */
export const DefaultPrincipalData = message({
  name: 'DefaultPrincipalData',
  type: 'data',
  validVersions: '0',
  flexibleVersions: '0+',
  fields: {
    type: string('0+'),
    name: string('0+'),
    tokenAuthenticated: bool('0+'),
  },
});
/** A decoded {@link DefaultPrincipalData}. */
export type DefaultPrincipalData = MessageOf<typeof DefaultPrincipalData>;
