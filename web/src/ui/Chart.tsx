// A chart over time: lines, or areas on top of each other.
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
  /** The journal's time of each point, in microseconds. */
  times: number[];
  series: Series[];
  stacked?: boolean;
  max?: number | undefined;
  height?: number;
  format?: (value: number | null | undefined) => string;
}

export function Chart(props: Props) {
  const { label, times, series, stacked = false, height = 150, format = short } = props;
  const holder = useRef<HTMLDivElement>(null);
  const plot = useRef<uPlot | null>(null);
  const [cursor, setCursor] = useState<number | null>(null);
  const colors = useColorVersion();
  const data = useMemo(() => dataOf(times, series, stacked), [times, series, stacked]);
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
  }, [shape, stacked, height, colors, props.max]);

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
            <strong>{format(one.values[at])}</strong>
          </span>
        ))}
        {cursor !== null && time !== undefined ? (
          <span className="legend-time dim">{clockTime(time)}</span>
        ) : null}
      </figcaption>
    </figure>
  );
}

function dataOf(times: number[], series: Series[], stacked: boolean): uPlot.AlignedData {
  const x = times.map((time) => time / 1e6);
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
  const { stacked = false, max, format = short } = props;
  const order = stacked ? [...props.series].reverse() : props.series;
  const axis = {
    stroke: colorOf("text-3"),
    grid: { stroke: colorOf("border"), width: 1 },
    ticks: { show: false },
    font: "11px ui-sans-serif, system-ui, sans-serif",
  };
  return {
    width: Math.max(width, 50),
    height,
    padding: [8, 26, 0, 0],
    legend: { show: false },
    cursor: { y: false, points: { show: !stacked }, drag: { x: false, y: false } },
    scales: { y: { range: (_plot, _low, high) => [0, max ?? Math.max(high * 1.08, 1)] } },
    axes: [
      {
        ...axis,
        size: 22,
        space: 90,
        values: (plot, ticks) => {
          const { min = 0, max = 0 } = plot.scales.x ?? {};
          const distance = (((max ?? 0) - (min ?? 0)) / 6) * 1e6;
          return ticks.map((tick) => tickTime(tick * 1e6, distance));
        },
      },
      { ...axis, size: 46, space: 32, values: (_plot, ticks) => ticks.map((t) => format(t)) },
    ],
    series: [
      {},
      ...order.map((one) => ({
        label: one.label,
        stroke: colorOf(one.color),
        width: stacked ? 0 : 1.75,
        ...(stacked ? { fill: fillOf(one.color) } : {}),
        points: { show: false },
      })),
    ],
    hooks: {
      setCursor: [(plot) => onCursor(plot.cursor.left === -10 ? null : (plot.cursor.idx ?? null))],
    },
  };
}
