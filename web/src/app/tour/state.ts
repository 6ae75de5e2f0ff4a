// Whether the guided tour runs, and whether this browser was offered it before.
import { useSyncExternalStore } from "react";

const KEY = "treadle.tour";

/** The number of the step that is shown, or that nothing is. */
let at: number | null = null;
let offered = wasOffered();
const watchers = new Set<() => void>();

/** Without storage the offer could not be remembered: then it is not made. */
function wasOffered(): boolean {
  try {
    return localStorage.getItem(KEY) !== null;
  } catch {
    return true;
  }
}

function goTo(step: number | null): void {
  at = step;
  offered = true;
  try {
    localStorage.setItem(KEY, "seen");
  } catch {
    // It is offered again when the console is opened again.
  }
  for (const watcher of watchers) watcher();
}

export const tour = {
  start: () => goTo(0),
  goTo,
  /** Ends it, or declines the offer. */
  end: () => goTo(null),
};

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** The step that is shown. */
export function useTourStep(): number | null {
  return useSyncExternalStore(watch, () => at);
}

export function useTourOffered(): boolean {
  return useSyncExternalStore(watch, () => offered);
}
