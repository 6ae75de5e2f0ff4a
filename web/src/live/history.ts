// The history of the metrics: the daemon's samples, and values since this tab was opened.
import { ApiError, call, send } from "../api/client";
import { onSessionChange } from "../api/session";
import { journalNow } from "./clock";
import { feed } from "./feed";
import { type Metrics, metricsOf, parseMetrics } from "./metrics";

export interface Point {
  /** The journal's time, in microseconds. */
  at: number;
  metrics: Metrics;
}

const PERIOD_MS = 2000;
const POINTS_MAX = 900;

class History {
  points: Point[] = [];
  error: ApiError | null = null;
  private watchers = new Set<() => void>();
  private timer: ReturnType<typeof setTimeout> | null = null;

  /** Begins to collect; once for the tab. */
  start(): void {
    if (this.timer !== null) return;
    this.schedule(0);
    // Another caller may see other values.
    onSessionChange(() => {
      this.points = [];
    });
  }

  watch = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  /** The points; a new array whenever there is another one. */
  snapshot = (): Point[] => this.points;

  private schedule(delay: number): void {
    this.timer = setTimeout(() => void this.collect(), delay);
  }

  private async collect(): Promise<void> {
    if (!document.hidden && feed.state === "live") {
      try {
        if (this.points.length === 0) this.points = await sampled();
        const response = await send("/metrics", { headers: { accept: "text/plain" } });
        const point = { at: journalNow(), metrics: parseMetrics(await response.text()) };
        const last = this.points.at(-1);
        const restarted = last !== undefined && hasRestarted(last.metrics, point.metrics);
        // The clock is reckoned, and may lie before a sample at first: no chart goes back in time.
        const before = restarted ? [] : this.points.filter((one) => one.at < point.at);
        this.points = before.slice(-(POINTS_MAX - 1)).concat(point);
        this.error = null;
      } catch (error) {
        this.error = error instanceof ApiError ? error : null;
      }
      for (const watcher of this.watchers) watcher();
    }
    this.schedule(PERIOD_MS);
  }
}

/** The daemon's samples of the last hours, of the last one without a number; it keeps three days. */
export async function sampled(hours?: number): Promise<Point[]> {
  const since_ms = hours ? Math.round(journalNow() / 1000 - hours * 3600e3) : null;
  const { points } = await call("get", "/api/v1/history", { query: { since_ms } });
  return points.map(({ at_us, values }) => ({ at: at_us, metrics: metricsOf(values) }));
}

function hasRestarted(before: Metrics, after: Metrics): boolean {
  const name = "treadle_steps_arrived_total";
  return (after.sum(name) ?? 0) < (before.sum(name) ?? 0);
}

export const history = new History();

/** How fast a counter rose over the last points, per second of the journal's clock. */
export function rateOf(points: Point[], name: string, span = 15): number | null {
  const last = points.at(-1);
  const first = points.at(-1 - Math.min(span, points.length - 1));
  if (!first || !last || first === last) return null;
  const seconds = (last.at - first.at) / 1e6;
  const before = first.metrics.sum(name);
  const after = last.metrics.sum(name);
  return seconds <= 0 || before === null || after === null ? null : (after - before) / seconds;
}

/** The first point of this much of the journal's time that has a metric, and the last of all. */
export function recent(points: Point[], name: string, spanUs: number): [Point, Point] | null {
  const last = points.at(-1);
  if (!last) return null;
  const has = (point: Point) => point.metrics.sum(name) !== null;
  const first = points.find((point) => point.at >= last.at - spanUs && has(point));
  return first ? [first, last] : null;
}

/** How much a counter rose over this much of the journal's time, as far back as points have it. */
export function risen(points: Point[], name: string, spanUs: number): number {
  const [first, last] = recent(points, name, spanUs) ?? [];
  return Math.max(0, (last?.metrics.sum(name) ?? 0) - (first?.metrics.sum(name) ?? 0));
}
