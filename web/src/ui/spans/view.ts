// The part of a line that is in sight, how to move it, and which spans are in it.
import type { Span } from "../../model/timeline";

export interface View {
  from: number;
  to: number;
}

const SMALLEST_SHARE = 1e-5;

/** Keeps a view within a line of this length. */
export function clampView(view: View, length: number): View {
  const smallest = Math.max(length * SMALLEST_SHARE, 1);
  const width = Math.min(Math.max(view.to - view.from, smallest), length);
  const from = Math.min(Math.max(view.from, 0), length - width);
  return { from, to: from + width };
}

/** Shows `factor` times as much, with the place `at` where it was. */
export function zoomView(view: View, factor: number, at: number, length: number): View {
  return clampView(
    { from: at - (at - view.from) * factor, to: at + (view.to - at) * factor },
    length,
  );
}

/** Moves the view by a share of its width. */
export function panView(view: View, share: number, length: number): View {
  const by = (view.to - view.from) * share;
  return clampView({ from: view.from + by, to: view.to + by }, length);
}

const latestEnds = new WeakMap<Span[], number[]>();

/** The first span that may reach beyond `time`. */
export function firstInSight(spans: Span[], time: number): number {
  let ends = latestEnds.get(spans);
  if (!ends || ends.length !== spans.length) {
    let latest = Number.NEGATIVE_INFINITY;
    ends = spans.map((span) => {
      latest = Math.max(latest, span.to);
      return latest;
    });
    latestEnds.set(spans, ends);
  }
  let low = 0;
  let high = ends.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if ((ends[middle] ?? 0) < time) low = middle + 1;
    else high = middle;
  }
  return low;
}
