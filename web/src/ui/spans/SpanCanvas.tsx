// Lanes of spans over time: zoom by wheel with Ctrl or by + and -, move by drag or arrow keys with
// Shift, choose by click or by arrow keys and Enter.
import { useEffect, useRef, useState } from "react";
import type { FoldedScale } from "../../model/scale";
import type { Lane, Span } from "../../model/timeline";
import { HoverCard } from "./HoverCard";
import { AXIS_HEIGHT, placeAt } from "./paint";
import { useCursor } from "./useCursor";
import { stateColor, usePainting, useWidth } from "./usePainting";
import { usePointer } from "./usePointer";
import { useView, useWheelZoom, type ViewControl } from "./useView";

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

const HELP =
  "Arrow keys lead from span to span, Enter opens one. With Shift they move the view; plus and minus zoom, 0 shows all.";

export function SpanCanvas(props: Props) {
  const { lanes, scale, rowHeight, onSelect } = props;
  const canvas = useRef<HTMLCanvasElement>(null);
  const scroller = useRef<HTMLDivElement>(null);
  const width = useWidth(scroller);
  const [scrollTop, setScrollTop] = useState(0);
  const control = useView(scale.length);
  const full = AXIS_HEIGHT + lanes.length * rowHeight;
  const height = Math.min(full, props.maxHeight);
  const layout = { width, height, gutter: width < 560 ? 84 : 150, rowHeight, scrollTop };
  const { hover, handlers } = usePointer({ lanes, scale, layout, control, onSelect });
  const cursor = useCursor({ lanes, scale, layout, control, scroller, onSelect });
  useWheelZoom(scroller, control.zoom, (x) => placeAt(x, control.sight, layout));
  usePainting(canvas, {
    lanes,
    scale,
    view: control.sight,
    layout,
    colorFor: props.colorFor ?? stateColor,
    selected: props.selected ?? null,
    marked: props.marked ?? null,
    focused: cursor.place,
  });
  const card = hover ?? cursor.card;
  useEffect(() => {
    if (props.scrollTop !== undefined && scroller.current)
      scroller.current.scrollTop = props.scrollTop;
  }, [props.scrollTop]);
  return (
    <div className="spans">
      <ZoomButtons control={control} />
      <div
        className="spans-scroll"
        ref={scroller}
        style={{ height }}
        role="application"
        aria-label={`${props.label}. ${HELP}`}
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it is moved and zoomed by keys
        tabIndex={0}
        onKeyDown={(event) => {
          cursor.onKey(event);
          control.onKey(event);
        }}
        onBlur={cursor.forget}
        onScroll={(event) => {
          setScrollTop(event.currentTarget.scrollTop);
          props.onScroll?.(event.currentTarget.scrollTop);
        }}
      >
        <div className="spans-room" style={{ height: full }}>
          <canvas ref={canvas} style={{ width: "100%", height }} {...handlers} />
        </div>
      </div>
      <div className="visually-hidden" aria-live="polite">
        {cursor.words}
      </div>
      {card ? <HoverCard hover={card} width={width} /> : null}
    </div>
  );
}

function ZoomButtons({ control }: { control: ViewControl }) {
  return (
    <div className="spans-tools">
      <button
        type="button"
        className="button small"
        aria-label="Zoom in"
        onClick={() => control.zoom(0.5)}
      >
        +
      </button>
      <button
        type="button"
        className="button small"
        aria-label="Zoom out"
        onClick={() => control.zoom(2)}
      >
        −
      </button>
      <button
        type="button"
        className="button small"
        disabled={control.whole}
        onClick={() => control.show(null)}
      >
        Fit
      </button>
    </div>
  );
}
