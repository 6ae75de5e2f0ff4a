// All lanes in little, with a brush that shows which are in sight.
import { type KeyboardEvent, type PointerEvent, useLayoutEffect, useRef } from "react";
import type { FoldedScale } from "../../model/scale";
import type { Lane, Span } from "../../model/timeline";
import { AXIS_HEIGHT } from "../../ui/spans/paint";
import { useColorVersion } from "../../ui/theme";

const WIDTH = 120;

interface Props {
  lanes: Lane[];
  scale: FoldedScale;
  height: number;
  rowHeight: number;
  top: number;
  onTop: (top: number) => void;
  colorFor: (span: Span, lane: Lane) => string;
}

export function Minimap({ lanes, scale, height, rowHeight, top, onTop, colorFor }: Props) {
  const canvas = useRef<HTMLCanvasElement>(null);
  const colors = useColorVersion();
  const full = lanes.length * rowHeight;
  const sight = height - AXIS_HEIGHT;
  const brushHeight = Math.min(height, (sight / full) * height);
  const brushTop = Math.min((top / full) * height, height - brushHeight);

  // biome-ignore lint/correctness/useExhaustiveDependencies: `colors` stands for what tokens give
  useLayoutEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (!element || !context) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = WIDTH * ratio;
    element.height = height * ratio;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, WIDTH, height);
    const row = height / lanes.length;
    lanes.forEach((lane, at) => {
      for (const span of lane.spans) {
        context.fillStyle = colorFor(span, lane);
        const from = (scale.place(span.from) / scale.length) * WIDTH;
        const to = (scale.place(span.to) / scale.length) * WIDTH;
        context.fillRect(from, at * row, Math.max(0.5, to - from), Math.max(0.75, row - 0.5));
      }
    });
  }, [lanes, scale, height, colorFor, colors]);

  const move = (event: PointerEvent) => {
    if (event.buttons !== 1) return;
    const box = event.currentTarget.getBoundingClientRect();
    const middle = ((event.clientY - box.top) / height) * full;
    onTop(Math.max(0, Math.min(full - sight, middle - sight / 2)));
  };
  const onKey = (event: KeyboardEvent) => {
    const by = {
      ArrowDown: rowHeight * 4,
      ArrowUp: -rowHeight * 4,
      PageDown: sight,
      PageUp: -sight,
    }[event.key];
    if (by === undefined) return;
    event.preventDefault();
    onTop(Math.max(0, Math.min(full - sight, top + by)));
  };
  return (
    <div
      className="minimap"
      style={{ height }}
      role="scrollbar"
      aria-label="Lanes in sight"
      aria-controls="main"
      aria-orientation="vertical"
      aria-valuenow={Math.round(top / rowHeight)}
      aria-valuemin={0}
      aria-valuemax={lanes.length}
      tabIndex={0}
      onKeyDown={onKey}
      onPointerDown={(event) => {
        event.currentTarget.setPointerCapture(event.pointerId);
        move(event);
      }}
      onPointerMove={move}
    >
      <canvas ref={canvas} style={{ width: WIDTH, height }} />
      <div className="brush" style={{ top: brushTop, height: brushHeight }} />
    </div>
  );
}
