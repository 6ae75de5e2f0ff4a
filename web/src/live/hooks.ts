// Hooks on the live connection, the clock and the history.
import { useEffect, useRef, useSyncExternalStore } from "react";
import type { EventView } from "../api/types";
import { type FeedState, feed } from "./feed";
import { history, type Point } from "./history";

/** The state of the live connection. */
export function useFeedState(): FeedState {
  return useSyncExternalStore(feed.watch, () => feed.state);
}

/** Calls back with events as they come in. */
export function useFeed(listener: (events: EventView[]) => void): void {
  const latest = useRef(listener);
  useEffect(() => {
    latest.current = listener;
  });
  useEffect(() => feed.listen((events) => latest.current(events)), []);
}

/** The history of the metrics while this tab was open. */
export function useHistory(): Point[] {
  return useSyncExternalStore(history.watch, history.snapshot);
}

const tickers = new Set<() => void>();
let tick = 0;
setInterval(() => {
  tick += 1;
  for (const ticker of tickers) ticker();
}, 1000);

/** Renders once a second. */
export function useTick(): number {
  return useSyncExternalStore(
    (notify) => {
      tickers.add(notify);
      return () => tickers.delete(notify);
    },
    () => tick,
  );
}
