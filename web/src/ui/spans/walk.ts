// From span to span by keys.
import type { Lane } from "../../model/timeline";
import { firstInSight } from "./view";

/** A span by the numbers of its lane and its own within that. */
export interface Place {
  lane: number;
  span: number;
}

/** Where a key leads from a span, or at first, when `time` is the left end of what is in sight. */
export function walk(lanes: Lane[], at: Place | null, key: string, time: number): Place | null {
  if (!at) return KEYS.includes(key) ? nearest(lanes, 0, 1, time) : null;
  const spans = lanes[at.lane]?.spans ?? [];
  const to = (span: number) => ({
    lane: at.lane,
    span: Math.max(0, Math.min(spans.length - 1, span)),
  });
  const from = spans[at.span]?.from ?? time;
  switch (key) {
    case "ArrowLeft":
      return to(at.span - 1);
    case "ArrowRight":
      return to(at.span + 1);
    case "Home":
      return to(0);
    case "End":
      return to(spans.length - 1);
    case "ArrowUp":
      return nearest(lanes, at.lane - 1, -1, from) ?? at;
    case "ArrowDown":
      return nearest(lanes, at.lane + 1, 1, from) ?? at;
    default:
      return null;
  }
}

const KEYS = ["ArrowLeft", "ArrowRight", "ArrowUp", "ArrowDown", "Home", "End"];

/** The span that is at `time` or follows it, in the next lane that has any. */
function nearest(lanes: Lane[], begin: number, by: 1 | -1, time: number): Place | null {
  for (let lane = begin; lane >= 0 && lane < lanes.length; lane += by) {
    const spans = lanes[lane]?.spans ?? [];
    if (spans.length > 0)
      return { lane, span: Math.min(spans.length - 1, firstInSight(spans, time)) };
  }
  return null;
}
