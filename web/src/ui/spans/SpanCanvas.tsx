// Lanes of spans over time: zoom by wheel with Ctrl or by + and -, move by drag or arrow keys,
// choose by click or Enter.
import {
  type KeyboardEvent,
  type PointerEvent,
  useCallback,
  useEffect,
  useLayoutEffect,
  useRef,
  useState,
} from "react";
import { duration, preciseTime } from "../../format/time";
import type { FoldedScale } from "../../model/scale";
import { STATES } from "../../model/states";
import type { Lane, Span } from "../../model/timeline";
import { colorOf, useColorVersion } from "../theme";
import { AXIS_HEIGHT, firstInSight, type Layout, paint, placeAt } from "./paint";
import { clampView, panView, type View, zoomView } from "./view";

interface Props {
  label: string;
  lanes: Lane[];
  scale: FoldedScale;
  rowHeight: number;
  /** The greatest height; more lanes scroll. */
  maxHeight: number;
  scrollTop?: number;
  onScroll?: (scrollTop: number) => void;
  colorFor?: (span: Span, lane: Lane) => string;
  selected?: number | null;
  onSelect: (span: Span | null, lane: Lane) => void;
  marked?: string | null;
}

interface Hover {
  x: number;
  y: number;
  span: Span | null;
  lane: Lane;
}

/** The colour of a span's state. */
export function stateColor(span: Span): string {
  return colorOf(`state-${span.state}`);
}

export function SpanCanvas(props: Props) {
  const { lanes, scale, rowHeight, maxHeight, colorFor = stateColor, onSelect } = props;
  const { selected = null, marked = null, onScroll } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const width = useWidth(scroller);
  const [view, setView] = useState<View | null>(null);
  const [innerTop, setInnerTop] = useState(0);
  const [hover, setHover] = useState<Hover | null>(null);
  const colors = useColorVersion();
  const drag = useRef<{ x: number; view: View; moved: boolean } | null>(null);
  const full = AXIS_HEIGHT + lanes.length * rowHeight;
  const height = Math.min(full, maxHeight);
  const gutter = width < 560 ? 84 : 150;
  const layout: Layout = { width, height, gutter, rowHeight, scrollTop: innerTop };
  const sight = view ? clampView(view, scale.length) : { from: 0, to: scale.length };

  // biome-ignore lint/correctness/useExhaustiveDependencies: `colors` stands for what tokens give
  useLayoutEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (!element || !context || width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const cache = new Map<string, string>();
    const cached = (span: Span, lane: Lane) => {
      if (colorFor !== stateColor) return colorFor(span, lane);
      const known = cache.get(span.state) ?? stateColor(span);
      cache.set(span.state, known);
      return known;
    };
    paint(context, { lanes, scale, view: sight, layout, colorFor: cached, selected, marked });
  }, [
    lanes,
    scale,
    sight.from,
    sight.to,
    width,
    height,
    innerTop,
    rowHeight,
    selected,
    marked,
    colors,
    colorFor,
  ]);

  useEffect(() => {
    if (props.scrollTop !== undefined && scroller.current)
      scroller.current.scrollTop = props.scrollTop;
  }, [props.scrollTop]);

  const zoom = useCallback(
    (factor: number, at?: number) =>
      setView((before) => {
        const now = before ?? { from: 0, to: scale.length };
        return zoomView(now, factor, at ?? (now.from + now.to) / 2, scale.length);
      }),
    [scale.length],
  );
  useWheelZoom(scroller, zoom, (x) => placeAt(x, sight, layout));

  const find = (event: PointerEvent): Hover | null => {
    const box = canvas.current?.getBoundingClientRect();
    if (!box) return null;
    const x = event.clientX - box.left;
    const y = event.clientY - box.top;
    const lane = lanes[Math.floor((y - AXIS_HEIGHT + innerTop) / rowHeight)];
    if (!lane || y < AXIS_HEIGHT) return null;
    if (x < gutter) return { x, y, span: null, lane };
    const perPixel = (sight.to - sight.from) / Math.max(1, width - gutter);
    const at = placeAt(x, sight, layout);
    return { x, y, lane, span: spanAt(lane, scale, at - perPixel * 2, at + perPixel * 2) };
  };
  const onMove = (event: PointerEvent) => {
    const start = drag.current;
    if (start) {
      const by = (start.x - event.clientX) / Math.max(1, width - gutter);
      if (Math.abs(event.clientX - start.x) > 3) start.moved = true;
      if (start.moved) setView(panView(start.view, by, scale.length));
      return;
    }
    setHover(find(event));
  };
  const onUp = (event: PointerEvent) => {
    const moved = drag.current?.moved;
    drag.current = null;
    const found = moved ? null : find(event);
    if (found) onSelect(found.span, found.lane);
  };
  const onKey = (event: KeyboardEvent) => {
    const acts: Record<string, () => void> = {
      "+": () => zoom(0.6),
      "=": () => zoom(0.6),
      "-": () => zoom(1.6),
      "0": () => setView(null),
      arrowleft: () => setView(panView(sight, -0.15, scale.length)),
      arrowright: () => setView(panView(sight, 0.15, scale.length)),
    };
    const act = acts[event.key.toLowerCase()];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  };
  return (
    <div className="spans">
      <div className="spans-tools">
        <button
          type="button"
          className="button small"
          onClick={() => zoom(0.5)}
          aria-label="Zoom in"
        >
          +
        </button>
        <button
          type="button"
          className="button small"
          onClick={() => zoom(2)}
          aria-label="Zoom out"
        >
          −
        </button>
        <button
          type="button"
          className="button small"
          onClick={() => setView(null)}
          disabled={!view}
        >
          Fit
        </button>
      </div>
      <div
        className="spans-scroll"
        ref={scroller}
        style={{ height }}
        role="application"
        aria-label={`${props.label}. Arrow keys move, plus and minus zoom, 0 shows all. The tables below have the same content.`}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it is moved and zoomed by keys
        tabIndex={0}
        onKeyDown={onKey}
        onScroll={(event) => {
          setInnerTop(event.currentTarget.scrollTop);
          onScroll?.(event.currentTarget.scrollTop);
        }}
      >
        <div className="spans-room" style={{ height: full }}>
          <canvas
            ref={canvas}
            style={{ width: "100%", height }}
            onPointerDown={(event) => {
              drag.current = { x: event.clientX, view: sight, moved: false };
              event.currentTarget.setPointerCapture(event.pointerId);
              setHover(null);
            }}
            onPointerMove={onMove}
            onPointerUp={onUp}
            onPointerLeave={() => setHover(null)}
          />
        </div>
      </div>
      {hover ? <HoverCard hover={hover} width={width} /> : null}
    </div>
  );
}

function HoverCard({ hover, width }: { hover: Hover; width: number }) {
  const { span, lane } = hover;
  const left = hover.x > width - 260 ? hover.x - 252 : hover.x + 14;
  return (
    <div className="spans-hover" style={{ left, top: hover.y + 52 }}>
      {span ? (
        <>
          <div className="state">
            <span className={`swatch state-${span.state}`} aria-hidden="true" />
            <strong>{STATES[span.state].label}</strong>
            {span.step === undefined ? null : <span className="dim">step {span.step}</span>}
          </div>
          {span.label === STATES[span.state].label ? null : <div>{span.label}</div>}
          <div className="soft">
            {duration(span.to - span.from)}
            {span.open ? " so far" : ""} from {preciseTime(span.from)}
          </div>
        </>
      ) : null}
      <div className="dim clip">{lane.label}</div>
    </div>
  );
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

function useWidth(element: React.RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const target = element.current;
    if (!target) return;
    const observer = new ResizeObserver(() => setWidth(target.clientWidth));
    observer.observe(target);
    setWidth(target.clientWidth);
    return () => observer.disconnect();
  }, [element]);
  return width;
}

/** The browser's wheel listeners of React can't keep the page from zooming. */
function useWheelZoom(
  element: React.RefObject<HTMLElement | null>,
  zoom: (factor: number, at: number) => void,
  placeOf: (x: number) => number,
): void {
  const latest = useRef({ zoom, placeOf });
  latest.current = { zoom, placeOf };
  useEffect(() => {
    const target = element.current;
    if (!target) return;
    const onWheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const x = event.clientX - target.getBoundingClientRect().left;
      latest.current.zoom(Math.exp(event.deltaY * 0.004), latest.current.placeOf(x));
    };
    target.addEventListener("wheel", onWheel, { passive: false });
    return () => target.removeEventListener("wheel", onWheel);
  }, [element]);
}
