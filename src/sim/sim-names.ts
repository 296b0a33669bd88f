/**
 * The directory entries of a simulated disk, as one map from path to file or directory.
 *
 * Changes are values, so that the same change can be applied to what programs see now and later,
 * or never, to what a power loss leaves.
 */
import type { SimFile } from './sim-file.ts';

/** Every existing path. The root (`''`) and `.` need no entry. */
export type Names = Map<string, SimFile | 'directory'>;

/** One atomic change of names. */
export type NameChange =
  | { readonly kind: 'create'; readonly path: string; readonly node: SimFile | 'directory' }
  | { readonly kind: 'rename'; readonly from: string; readonly path: string }
  | { readonly kind: 'remove'; readonly path: string };

/** The directory a path is in; `''` for the root and for a relative path without one. */
export function parentOf(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf('/')));
}

/** Whether `change` adds to or takes from `directory` itself. */
export function touches(change: NameChange, directory: string): boolean {
  return (
    parentOf(change.path) === directory ||
    (change.kind === 'rename' && parentOf(change.from) === directory)
  );
}

function subtree(names: Names, path: string): [string, SimFile | 'directory'][] {
  return [...names].filter(([at]) => at === path || at.startsWith(`${path}/`));
}

/** Applies `change`. A rename takes a directory's contents along and replaces what it meets. */
export function changeNames(names: Names, change: NameChange): void {
  if (change.kind === 'create') {
    names.set(change.path, change.node);
    return;
  }
  if (change.kind === 'remove') {
    for (const [at] of subtree(names, change.path)) names.delete(at);
    return;
  }
  const moved = subtree(names, change.from);
  for (const [at] of moved) names.delete(at);
  for (const [at] of subtree(names, change.path)) names.delete(at);
  for (const [at, node] of moved) names.set(change.path + at.slice(change.from.length), node);
}
