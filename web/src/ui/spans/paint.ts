// Paints lanes of spans on a canvas: only what is in sight, and of spans that are thinner than a
// pixel one for each pixel.
import { duration } from "../../format/time";
import type { FoldedScale } from "../../model/scale";
import { tickStep } from "../../model/scale";
import type { Lane, Span } from "../../model/timeline";
import { colorOf } from "../theme";
import { firstInSight, type View } from "./view";

export const AXIS_HEIGHT = 24;

export interface Layout {
  width: number;
  height: number;
  gutter: number;
  rowHeight: number;
  scrollTop: number;
}

export interface Picture {
  lanes: Lane[];
  scale: FoldedScale;
  view: View;
  layout: Layout;
  colorFor: (span: Span, lane: Lane) => string;
  selected: number | null;
  marked: string | null;
  /** What is chosen by keys, by the numbers of its lane and of its span. */
  focused: { lane: number; span: number } | null;
}

interface Ink {
  text: string;
  dim: string;
  border: string;
  surface: string;
  soft: string;
  accent: string;
}

/** The x of a place on the line. */
export function xOf(place: number, view: View, layout: Layout): number {
  const width = layout.width - layout.gutter;
  return layout.gutter + ((place - view.from) / (view.to - view.from)) * width;
}

/** The place on the line at an x. */
export function placeAt(x: number, view: View, layout: Layout): number {
  const width = layout.width - layout.gutter;
  return view.from + ((x - layout.gutter) / width) * (view.to - view.from);
}

/** Paints everything. */
export function paint(context: CanvasRenderingContext2D, picture: Picture): void {
  const { layout } = picture;
  const ink: Ink = {
    text: colorOf("text"),
    dim: colorOf("text-3"),
    border: colorOf("border"),
    surface: colorOf("surface"),
    soft: colorOf("surface-2"),
    accent: colorOf("accent"),
  };
  context.clearRect(0, 0, layout.width, layout.height);
  context.font = `11px ${getComputedStyle(document.body).fontFamily}`;
  context.textBaseline = "middle";
  paintAxis(context, picture, ink);
  const first = Math.max(0, Math.floor(layout.scrollTop / layout.rowHeight));
  const shown = Math.ceil((layout.height - AXIS_HEIGHT) / layout.rowHeight) + 1;
  context.save();
  context.beginPath();
  context.rect(0, AXIS_HEIGHT, layout.width, layout.height - AXIS_HEIGHT);
  context.clip();
  for (let at = first; at < Math.min(picture.lanes.length, first + shown); at += 1) {
    paintLane(context, picture, at, ink);
  }
  paintFocus(context, picture, ink);
  context.restore();
}

/** A frame around the span that is chosen by keys. */
function paintFocus(context: CanvasRenderingContext2D, picture: Picture, ink: Ink): void {
  const { lanes, layout, scale, view, focused } = picture;
  const span = focused ? lanes[focused.lane]?.spans[focused.span] : undefined;
  if (!focused || !span) return;
  const from = Math.max(xOf(scale.place(span.from), view, layout), layout.gutter);
  const to = Math.max(xOf(scale.place(span.to), view, layout), from + 1);
  const top = AXIS_HEIGHT + focused.lane * layout.rowHeight - layout.scrollTop;
  for (const [color, width] of [
    [ink.surface, 5],
    [ink.accent, 2],
  ] as const) {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.strokeRect(from - 1, top + 1, to - from + 2, layout.rowHeight - 2);
  }
  context.lineWidth = 1;
}

function paintAxis(context: CanvasRenderingContext2D, picture: Picture, ink: Ink): void {
  const { scale, view, layout } = picture;
  const right = layout.width;
  context.textAlign = "left";
  paintFolds(context, picture, ink);
  const count = Math.max(2, Math.floor((right - layout.gutter) / 110));
  const step = tickStep(view.to - view.from, count);
  const firstTime = scale.time(view.from) - scale.from;
  let lastX = Number.NEGATIVE_INFINITY;
  const begin = Math.ceil(firstTime / step) * step;
  const end = scale.time(view.to) - scale.from;
  const stride = Math.max(1, Math.ceil((end - begin) / step / 4000));
  for (let time = begin; time <= end; time += step * stride) {
    const x = xOf(scale.place(scale.from + time), view, layout);
    if (x - lastX < 72 || x > right - 40) continue;
    lastX = x;
    context.strokeStyle = ink.border;
    context.lineWidth = 1;
    line(context, x, 16, x, layout.height);
    context.fillStyle = ink.dim;
    context.fillText(time === 0 ? "0" : `+${duration(time)}`, x + 4, 10);
  }
}

function paintFolds(context: CanvasRenderingContext2D, picture: Picture, ink: Ink): void {
  const { scale, view, layout } = picture;
  for (const fold of scale.folds) {
    if (fold.at > view.to || fold.at + fold.width < view.from) continue;
    const from = Math.max(layout.gutter, xOf(fold.at, view, layout));
    const to = xOf(fold.at + fold.width, view, layout);
    if (to <= from) continue;
    context.fillStyle = ink.soft;
    context.fillRect(from, AXIS_HEIGHT, Math.max(2, to - from), layout.height);
    context.strokeStyle = ink.dim;
    context.setLineDash([2, 3]);
    line(context, from, AXIS_HEIGHT, from, layout.height);
    line(context, to, AXIS_HEIGHT, to, layout.height);
    context.setLineDash([]);
  }
}

function paintLane(
  context: CanvasRenderingContext2D,
  picture: Picture,
  at: number,
  ink: Ink,
): void {
  const { lanes, layout, scale, view, marked } = picture;
  const lane = lanes[at];
  if (!lane) return;
  const top = AXIS_HEIGHT + at * layout.rowHeight - layout.scrollTop;
  const middle = top + layout.rowHeight / 2;
  if (layout.rowHeight >= 20) {
    context.strokeStyle = ink.border;
    line(context, 0, top + layout.rowHeight - 0.5, layout.width, top + layout.rowHeight - 0.5);
  }
  if (lane.id === marked) {
    context.fillStyle = ink.accent;
    context.fillRect(0, top + 1, 3, layout.rowHeight - 2);
  }
  if (layout.rowHeight >= 11) {
    context.fillStyle = lane.id === marked ? ink.accent : ink.text;
    context.textAlign = "left";
    context.fillText(fitEnd(context, lane.label, layout.gutter - 18), 8, middle);
  }
  context.save();
  context.beginPath();
  context.rect(layout.gutter, top, layout.width - layout.gutter, layout.rowHeight);
  context.clip();
  const viewFrom = scale.time(view.from);
  const viewTo = scale.time(view.to);
  let covered = -1;
  for (let index = firstInSight(lane.spans, viewFrom); index < lane.spans.length; index += 1) {
    const span = lane.spans[index];
    if (!span || span.from > viewTo) break;
    covered = paintSpan(context, picture, lane, span, top, covered, ink);
  }
  context.restore();
}

function paintSpan(
  context: CanvasRenderingContext2D,
  picture: Picture,
  lane: Lane,
  span: Span,
  top: number,
  covered: number,
  ink: Ink,
): number {
  const { layout, scale, view, selected } = picture;
  const from = xOf(scale.place(span.from), view, layout);
  const to = Math.max(xOf(scale.place(span.to), view, layout), from + 1);
  if (to - from <= 1 && Math.floor(from) === covered) return covered;
  const inset = layout.rowHeight >= 20 ? 5 : layout.rowHeight >= 8 ? 2 : 0;
  const color = picture.colorFor(span, lane);
  context.fillStyle = color;
  const height = layout.rowHeight - 2 * inset;
  context.fillRect(from, top + inset, to - from > 3 ? to - from - 0.75 : to - from, height);
  if (selected !== null && span.step === selected) {
    context.strokeStyle = ink.text;
    context.lineWidth = 2;
    context.strokeRect(from + 1, top + inset + 1, Math.max(2, to - from - 2), height - 2);
    context.lineWidth = 1;
  }
  const left = Math.max(from, layout.gutter);
  if (layout.rowHeight >= 20 && to - left > 40) {
    const text = fit(context, span.label, to - left - 12);
    if (text === span.label || text.length > 9) {
      context.fillStyle = inkOn(color);
      context.textAlign = "left";
      context.fillText(text, left + 6, top + layout.rowHeight / 2);
    }
  }
  return Math.floor(to - 0.001);
}

function line(
  context: CanvasRenderingContext2D,
  x: number,
  y: number,
  x2: number,
  y2: number,
): void {
  context.beginPath();
  context.moveTo(Math.round(x) + 0.5, y);
  context.lineTo(Math.round(x2) + 0.5, y2);
  context.stroke();
}

function fit(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let low = 0;
  let high = Math.min(text.length, 200);
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (context.measureText(`${text.slice(0, middle)}…`).width <= width) low = middle;
    else high = middle - 1;
  }
  return low > 2 ? `${text.slice(0, low)}…` : "";
}

/** Names differ at their ends: what does not fit is cut at the beginning. */
function fitEnd(context: CanvasRenderingContext2D, text: string, width: number): string {
  if (context.measureText(text).width <= width) return text;
  let start = Math.max(1, text.length - 200);
  while (start < text.length && context.measureText(`…${text.slice(start)}`).width > width)
    start += 1;
  return `…${text.slice(start)}`;
}

/** Dark or light text, whichever can be read on a colour. */
function inkOn(color: string): string {
  const [red = 0, green = 0, blue = 0] = (color.match(/[\d.]+/g) ?? []).map(Number);
  return red * 0.299 + green * 0.587 + blue * 0.114 > 140 ? "#0b0f14" : "#ffffff";
}
