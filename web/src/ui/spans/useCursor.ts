// The span that is chosen by keys: it is marked, brought into sight and described.
import { type KeyboardEvent, type RefObject, useState } from "react";
import { count } from "../../format/number";
import { duration, preciseTime } from "../../format/time";
import type { FoldedScale } from "../../model/scale";
import { STATES } from "../../model/states";
import type { Lane, Span } from "../../model/timeline";
import type { Hover } from "./HoverCard";
import { AXIS_HEIGHT, type Layout, xOf } from "./paint";
import type { ViewControl } from "./useView";
import { type Place, walk } from "./walk";

/** Where a span that was out of sight begins once it is brought there, as a share of the width. */
const BEGIN = 0.2;

interface Cursor {
  /** Number of the lane. */
  id: string;
  span: number;
  /** The span when it was chosen, which is read out once. */
  words: string;
}

interface Input {
  lanes: Lane[];
  scale: FoldedScale;
  layout: Layout;
  control: ViewControl;
  scroller: RefObject<HTMLElement | null>;
  onSelect: (span: Span | null, lane: Lane) => void;
}

export function useCursor({ lanes, scale, layout, control, scroller, onSelect }: Input) {
  // Lanes may come and go while one is looked at.
  const [cursor, setCursor] = useState<Cursor | null>(null);
  const place = cursor && placeOf(lanes, cursor);
  const lane = place ? lanes[place.lane] : undefined;
  const span = place ? lane?.spans[place.span] : undefined;
  const { sight } = control;

  const go = (to: Place) => {
    const next = lanes[to.lane];
    const found = next?.spans[to.span];
    if (!next || !found) return;
    setCursor({ id: next.id, span: to.span, words: wordsOf(found, next, to.span) });
    const begin = scale.place(found.from);
    const width = sight.to - sight.from;
    if (begin < sight.from || begin > sight.to) {
      const from = begin - width * BEGIN;
      control.show({ from, to: from + width });
    }
    scrollTo(scroller.current, to.lane * layout.rowHeight, layout);
  };
  const onKey = (event: KeyboardEvent) => {
    if (event.shiftKey || event.ctrlKey || event.metaKey || event.altKey) return;
    if (span && lane && (event.key === "Enter" || event.key === " ")) {
      event.preventDefault();
      onSelect(span, lane);
    }
    const to = walk(lanes, place, event.key, scale.time(sight.from));
    if (!to) return;
    event.preventDefault();
    go(to);
  };
  const forget = () => setCursor(null);
  if (!cursor || !place || !lane || !span)
    return { place: null, card: null, words: "", onKey, forget };
  const x = Math.max(layout.gutter, xOf(scale.place(span.from), sight, layout));
  const y = AXIS_HEIGHT + (place.lane + 0.5) * layout.rowHeight - layout.scrollTop;
  const card: Hover = { x, y, span, lane };
  return { place, card, words: cursor.words, onKey, forget };
}

function placeOf(lanes: Lane[], { id, span }: Cursor): Place | null {
  const lane = lanes.findIndex((one) => one.id === id);
  const spans = lanes[lane]?.spans.length ?? 0;
  return spans > 0 ? { lane, span: Math.min(span, spans - 1) } : null;
}

function scrollTo(scroller: HTMLElement | null, top: number, layout: Layout): void {
  if (!scroller) return;
  const room = layout.height - AXIS_HEIGHT - layout.rowHeight;
  if (top < scroller.scrollTop) scroller.scrollTop = top;
  else if (top > scroller.scrollTop + room) scroller.scrollTop = top - room;
}

/** The screen-reader text of a span. */
function wordsOf(span: Span, lane: Lane, at: number): string {
  const state = STATES[span.state].label;
  return [
    span.step === undefined ? state : `${state}, step ${span.step}`,
    span.label === state ? "" : span.label,
    `${duration(span.to - span.from)}${span.open ? " so far" : ""} from ${preciseTime(span.from)}`,
    `${lane.label}, ${count(at + 1)} of ${count(lane.spans.length)}`,
  ]
    .filter(Boolean)
    .join(". ");
}
