// Drags, hovers and clicks on lanes of spans.
import { type PointerEvent, useRef, useState } from "react";
import type { FoldedScale } from "../../model/scale";
import type { Lane, Span } from "../../model/timeline";
import type { Hover } from "./HoverCard";
import { AXIS_HEIGHT, type Layout, placeAt } from "./paint";
import type { ViewControl } from "./useView";
import { firstInSight, panView, type View } from "./view";

/** Pixels that a pointer may move in a click. */
const CLICK_SLACK = 3;

interface Input {
  lanes: Lane[];
  scale: FoldedScale;
  layout: Layout;
  control: ViewControl;
  onSelect: (span: Span | null, lane: Lane) => void;
}

export function usePointer({ lanes, scale, layout, control, onSelect }: Input) {
  const [hover, setHover] = useState<Hover | null>(null);
  const drag = useRef<{ x: number; view: View; moved: boolean } | null>(null);
  const { sight } = control;
  const inner = Math.max(1, layout.width - layout.gutter);

  const find = (event: PointerEvent): Hover | null => {
    const box = event.currentTarget.getBoundingClientRect();
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    const lane = lanes[Math.floor((y - AXIS_HEIGHT + layout.scrollTop) / layout.rowHeight)];
    if (!lane || y < AXIS_HEIGHT) return null;
    if (x < layout.gutter) return { x, y, span: null, lane };
    const slack = ((sight.to - sight.from) / inner) * 2;
    const at = placeAt(x, sight, layout);
    return { x, y, lane, span: spanAt(lane, scale, at - slack, at + slack) };
  };
  const onPointerDown = (event: PointerEvent) => {
    drag.current = { x: event.clientX, view: sight, moved: false };
    event.currentTarget.setPointerCapture(event.pointerId);
    setHover(null);
  };
  const onPointerMove = (event: PointerEvent) => {
    const start = drag.current;
    if (!start) {
      setHover(find(event));
      return;
    }
    const by = start.x - event.clientX;
    if (Math.abs(by) > CLICK_SLACK) start.moved = true;
    if (start.moved) control.show(panView(start.view, by / inner, scale.length));
  };
  const onPointerUp = (event: PointerEvent) => {
    const moved = drag.current?.moved;
    drag.current = null;
    const found = moved ? null : find(event);
    if (found) onSelect(found.span, found.lane);
  };
  const onPointerLeave = () => setHover(null);
  return { hover, handlers: { onPointerDown, onPointerMove, onPointerUp, onPointerLeave } };
}

function spanAt(lane: Lane, scale: FoldedScale, from: number, to: number): Span | null {
  const begin = scale.time(from);
  const end = scale.time(to);
  let found: Span | null = null;
  for (let at = firstInSight(lane.spans, begin); at < lane.spans.length; at += 1) {
    const span = lane.spans[at];
    if (!span || span.from > end) break;
    if (span.to >= begin) found = span;
  }
  return found;
}
