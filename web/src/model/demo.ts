// The demo's comparison: lines over time, and speedups.
import type { DemoArm, DemoComparison, DemoPoint } from "../api/types";

/** The scheduler that the others are compared with. */
export const BASELINE = "sticky";

/** A colour for each scheduler, whichever others there are. */
const COLORS: Record<string, string> = {
  "least-load": "series-3",
  sticky: "series-2",
  treadle: "series-1",
};

export function colorOfArm(name: string): string {
  return COLORS[name] ?? "series-3";
}

/** Seconds between two polls of a run. */
export const LOOK_S = 1.5;

/** Whether the run has ended, so that figures do not change any more. Daemons end with it: one that is
 *  gone shortly before the end was looked at for the last time. */
export function isOver(run: DemoComparison, isGone: boolean): boolean {
  const { arms, minute, minutes, time_scale } = run;
  const left = isGone ? (2 * LOOK_S * time_scale) / 60 : 0;
  return minute >= minutes - left || (minute > 0 && arms.every((arm) => !arm.url));
}

/** How many times the baseline's steps a minute an arm has; null for the baseline, and while it has none. */
export function timesBaseline(arm: DemoArm, arms: DemoArm[]): number | null {
  const baseline = arms.find((one) => one.name === BASELINE);
  if (!baseline || arm.name === BASELINE || baseline.steps_per_min <= 0) return null;
  return arm.steps_per_min > 0 ? arm.steps_per_min / baseline.steps_per_min : null;
}

/** The arms' lines over the minutes of all of them. Each was sampled at its own times: values
 *  between two samples are interpolated; there are none before the first and after the last. */
export function linesOf(arms: DemoArm[]): { minutes: number[]; values: (number | null)[][] } {
  const all = new Set(arms.flatMap((arm) => arm.points.map((point) => point.minute)));
  const minutes = [...all].sort((a, b) => a - b);
  return { minutes, values: arms.map((arm) => valuesAt(minutes, arm.points)) };
}

function valuesAt(minutes: number[], points: DemoPoint[]): (number | null)[] {
  let next = 0;
  return minutes.map((minute) => {
    while (next < points.length && (points[next]?.minute ?? 0) < minute) next += 1;
    const [before, after] = [points[next - 1], points[next]];
    if (after?.minute === minute) return after.steps_per_min;
    if (!before || !after) return null;
    const share = (minute - before.minute) / (after.minute - before.minute);
    return before.steps_per_min + share * (after.steps_per_min - before.steps_per_min);
  });
}
