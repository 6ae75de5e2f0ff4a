// Which set is best by which measure.
import type { WhatIfEstimate, WhatIfReport, WhatIfSet } from "../../api/types";
import { MEASURES, type MeasureRow } from "./measures";

/** A set, and the measures by which it is best beyond chance. */
export interface Winner {
  set: WhatIfSet;
  measures: MeasureRow[];
}

/** A set's figure beside that of the first one: good or bad only beyond chance. */
export function standing(
  set: WhatIfSet,
  first: WhatIfSet,
  { key, better, ratio }: MeasureRow,
): "better" | "worse" | "chance" {
  const paired = ratio && set.against_first?.[ratio];
  const gain = paired ? gainOf(paired) : differenceOf(set[key], first[key]);
  if (gain === 0 || better === "neither") return "chance";
  return gain < 0 === (better === "less") ? "better" : "worse";
}

/** The set that is best by a measure, of those that are better than the first one; the first one
 *  itself if each other is worse. */
export function winnerBy(report: WhatIfReport, row: MeasureRow): WhatIfSet | null {
  const [first, ...others] = report.sets;
  if (!first || others.length === 0) return null;
  if (others.every((set) => standing(set, first, row) === "worse")) return first;
  const sign = row.better === "less" ? 1 : -1;
  const mean = (set: WhatIfSet) => sign * (set[row.key]?.mean ?? 0);
  return (
    others
      .filter((set) => standing(set, first, row) === "better")
      .sort((a, b) => mean(a) - mean(b))[0] ?? null
  );
}

/** The sets that are best by a measure, whichever is so by most of them first. */
export function winnersOf(report: WhatIfReport): Winner[] {
  return report.sets
    .map((set) => ({ set, measures: MEASURES.filter((row) => winnerBy(report, row) === set) }))
    .filter(({ measures }) => measures.length > 0)
    .sort((a, b) => b.measures.length - a.measures.length);
}

/** The sign of a ratio's distance from one; none within its interval. */
function gainOf({ mean, half_width }: WhatIfEstimate): number {
  return Math.abs(mean - 1) > (half_width ?? Number.NaN) ? Math.sign(mean - 1) : 0;
}

/** The sign of a difference; none where the intervals meet. */
function differenceOf(own: WhatIfEstimate | undefined, first: WhatIfEstimate | undefined): number {
  if (!own || !first) return 0;
  const widths = (own.half_width ?? Number.NaN) + (first.half_width ?? Number.NaN);
  return Math.abs(own.mean - first.mean) > widths ? Math.sign(own.mean - first.mean) : 0;
}
