// A chart over time or over numbered things: lines, or areas on top of each other. Times are the
// journal's, or minutes of a run.
import { useEffect, useMemo, useRef, useState } from "react";
import uPlot from "uplot";
import "uplot/dist/uPlot.min.css";
import { short } from "../format/number";
import { clockTime, tickTime } from "../format/time";
import { colorOf, fillOf, useColorVersion } from "./theme";

export interface Series {
  label: string;
  /** Token of its colour, such as `state-decode`. */
  color: string;
  values: (number | null)[];
}

interface Props {
  label: string;
  /** The journal's time of each point, in microseconds; minutes with a span, numbers with a unit. */
  times: number[];
  series: Series[];
  stacked?: boolean;
  max?: number | undefined;
  height?: number;
  format?: (value: number | null | undefined) => string;
  /** The run that the times are minutes of. */
  span?: Span;
  /** What the points are numbered by instead of times, such as `batch`. */
  unit?: string;
  /** The points are few, and small or negative: each is marked. Those with a unit are. */
  few?: boolean;
}

/** A run of `minutes` minutes, whose first `shaded` minutes are shaded and labelled. */
export interface Span {
  minutes: number;
  shaded: number;
  label: string;
}

export function Chart(props: Props) {
  const { label, times, series, stacked = false, height = 150, format = short } = props;
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const colors = useColorVersion();
  const scale = props.span || props.unit ? 1 : 1e6;
  const data = useMemo(
    () => dataOf(times, scale, series, stacked),
    [times, scale, series, stacked],
  );
  const shape = series.map((one) => `${one.label}:${one.color}`).join();
  const latest = useRef(data);
  latest.current = data;

  // biome-ignore lint/correctness/useExhaustiveDependencies: `shape` and `colors` stand for what is drawn
  useEffect(() => {
    const element = holder.current;
    if (!element) return;
    const options = optionsOf(props, element.clientWidth, height, setCursor);
    const made = new uPlot(options, latest.current, element);
    plot.current = made;
    const observer = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height }));
    observer.observe(element);
    return () => {
      observer.disconnect();
      made.destroy();
      plot.current = null;
    };
  }, [shape, stacked, height, colors, props.max, props.span, props.unit, props.few]);

  useEffect(() => plot.current?.setData(data), [data]);

  const at = cursor !== null && cursor < times.length ? cursor : times.length - 1;
  const time = times[at];
  return (
    <figure className="chart">
      <div ref={holder} className="chart-plot" role="img" aria-label={label} />
      <figcaption className="legend">
        {series.map((one) => (
          <span key={one.label} className="legend-item">
            <span className={`swatch ${one.color}`} aria-hidden="true" />
            {one.label}
            <strong>
              {format(cursor === null && props.span ? lastOf(one.values) : one.values[at])}
            </strong>
          </span>
        ))}
        {cursor !== null && time !== undefined ? (
          <span className="legend-time dim">{placeOf(time, props)}</span>
        ) : null}
      </figcaption>
    </figure>
  );
}

/** The point under the cursor, in words. */
function placeOf(time: number, { span, unit }: Props): string {
  if (unit) return `${unit} ${time}`;
  return span ? `minute ${time.toFixed(1)}` : clockTime(time);
}

/** Lines of a run do not all end at the same time. */
function lastOf(values: (number | null)[]): number | null {
  return values.findLast((value) => value !== null) ?? null;
}

function dataOf(
  times: number[],
  scale: number,
  series: Series[],
  stacked: boolean,
): uPlot.AlignedData {
  const x = times.map((time) => time / scale);
  if (!stacked) return [x, ...series.map((one) => one.values)];
  const sums = new Array<number>(times.length).fill(0);
  const layers = series.map((one) =>
    one.values.map((value, at) => {
      sums[at] = (sums[at] ?? 0) + (value ?? 0);
      return sums[at] ?? 0;
    }),
  );
  // The highest layer is drawn first, and those below it cover it.
  return [x, ...layers.reverse()];
}

function optionsOf(
  props: Props,
  width: number,
  height: number,
  onCursor: (at: number | null) => void,
): uPlot.Options {
  const { stacked = false, max, span, unit, few = unit !== undefined } = props;
  const order = stacked ? [...props.series].reverse() : props.series;
  return {
    width: Math.max(width, 50),
    height,
    padding: [8, 26, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { show: !stacked }, drag: { x: false, y: false } },
    scales: {
      ...(span ? { x: { time: false, range: [0, span.minutes] } } : {}),
      ...(unit ? { x: { time: false, range: (_plot, low, high) => [low - 0.5, high + 0.5] } } : {}),
      y: {
        range: (_plot, low, high) =>
          few ? aroundZero(low, high) : [0, max ?? Math.max(high * 1.08, 1)],
      },
    },
    axes: axesOf(props),
    series: [
      {},
      ...order.map((one) => ({
        label: one.label,
        stroke: colorOf(one.color),
        width: stacked ? 0 : 1.75,
        ...(stacked ? { fill: fillOf(one.color) } : {}),
        points: { show: few },
      })),
    ],
    hooks: {
      drawClear: span ? [(plot) => shade(plot, span)] : [],
      setCursor: [(plot) => onCursor(plot.cursor.left === -10 ? null : (plot.cursor.idx ?? null))],
    },
  };
}

/** A range with room beyond the values, which may be small or negative. */
function aroundZero(low: number, high: number): [number, number] {
  const [from, to] = [Math.min(low * 1.08, 0), Math.max(high * 1.08, 0)];
  return [from, from < to ? to : 1];
}

/** Distances of ticks between numbered things. */
const WHOLE = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
const FONT = "11px ui-sans-serif, system-ui, sans-serif";

function axesOf({ format = short, span, unit }: Props): uPlot.Axis[] {
  const axis = {
    stroke: colorOf("text-3"),
    grid: { stroke: colorOf("border"), width: 1 },
    ticks: { show: false },
    font: FONT,
  };
  const timesOf = (plot: uPlot, ticks: number[]) => {
    const { min, max } = plot.scales.x ?? {};
    const distance = (((max ?? 0) - (min ?? 0)) / 6) * 1e6;
    return ticks.map((tick) => tickTime(tick * 1e6, distance));
  };
  const minutesOf = (_plot: uPlot, ticks: number[]) => ticks.map((tick) => `${short(tick)} min`);
  const numbersOf = (_plot: uPlot, ticks: number[]) => ticks.map(String);
  const across: uPlot.Axis = unit
    ? { space: 40, incrs: WHOLE, values: numbersOf }
    : { space: 90, values: span ? minutesOf : timesOf };
  return [
    { ...axis, size: 22, ...across },
    { ...axis, size: 46, space: 32, values: (_plot, ticks) => ticks.map((tick) => format(tick)) },
  ];
}

/** Shades the first minutes behind everything else, and labels them if there is room. */
function shade(plot: uPlot, { shaded, label }: Span): void {
  const { ctx, bbox } = plot;
  const width = plot.valToPos(shaded, "x", true) - bbox.left;
  if (!(width > 0)) return;
  const ratio = devicePixelRatio;
  ctx.save();
  ctx.fillStyle = colorOf("surface-2");
  ctx.fillRect(bbox.left, bbox.top, width, bbox.height);
  ctx.font = `${11 * ratio}px ui-sans-serif, system-ui, sans-serif`;
  ctx.fillStyle = colorOf("text-3");
  ctx.textAlign = "left";
  ctx.textBaseline = "top";
  if (ctx.measureText(label).width + 12 * ratio < width)
    ctx.fillText(label, bbox.left + 6 * ratio, bbox.top + 6 * ratio);
  ctx.restore();
}
