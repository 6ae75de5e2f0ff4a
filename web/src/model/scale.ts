// Time on a line, with idle stretches folded to a fixed width.

export interface Interval {
  from: number;
  to: number;
}

export interface Fold extends Interval {
  /** Where it is on the folded line, and how wide. */
  at: number;
  width: number;
}

/** Merges overlapping intervals; the answer is sorted. */
export function union(intervals: Interval[]): Interval[] {
  const sorted = [...intervals].sort((a, b) => a.from - b.from);
  const merged: Interval[] = [];
  for (const next of sorted) {
    const last = merged.at(-1);
    if (last && next.from <= last.to) last.to = Math.max(last.to, next.to);
    else merged.push({ ...next });
  }
  return merged;
}

/** Maps the journal's time to a line on which idle stretches are short, and back. */
export class FoldedScale {
  readonly folds: Fold[] = [];
  readonly length: number;

  /** Stretches between `busy` that take more than a twentieth of the busy time are folded. */
  constructor(
    readonly from: number,
    readonly to: number,
    busy: Interval[] | null,
  ) {
    if (busy === null) {
      this.length = to - from;
      return;
    }
    const merged = union(busy);
    const total = merged.reduce((sum, one) => sum + one.to - one.from, 0);
    const width = Math.max(total * 0.02, 1);
    let saved = 0;
    let end = from;
    for (const one of [...merged, { from: to, to }]) {
      const gap = one.from - end;
      if (gap > Math.max(total * 0.05, width * 2)) {
        this.folds.push({ from: end, to: one.from, at: end - from - saved, width });
        saved += gap - width;
      }
      end = Math.max(end, one.to);
    }
    this.length = to - from - saved;
  }

  /** The place of a time on the line. */
  place(time: number): number {
    let saved = 0;
    for (const fold of this.folds) {
      if (time <= fold.from) break;
      const gap = fold.to - fold.from;
      if (time < fold.to) return fold.at + ((time - fold.from) / gap) * fold.width;
      saved += gap - fold.width;
    }
    return time - this.from - saved;
  }

  /** The time at a place on the line. */
  time(place: number): number {
    let saved = 0;
    for (const fold of this.folds) {
      if (place <= fold.at) break;
      const gap = fold.to - fold.from;
      if (place < fold.at + fold.width) return fold.from + ((place - fold.at) / fold.width) * gap;
      saved += gap - fold.width;
    }
    return place + this.from + saved;
  }
}

const STEPS_US = [
  1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 15e6, 3e7, 6e7, 12e7, 3e8, 6e8,
  9e8, 18e8, 36e8, 72e8, 216e8, 864e8,
];

/** A round distance between ticks, so that at most `count` fit into `span`. */
export function tickStep(span: number, count: number): number {
  return STEPS_US.find((step) => span / step <= count) ?? span;
}
