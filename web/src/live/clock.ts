// The journal's clock. With simulated engines it may run faster than the wall clock, so "how long
// ago" is reckoned by the events that come in.

interface Mark {
  journal: number;
  wall: number;
}

const WINDOW_MS = 60_000;
const SILENCE_MS = 20_000;

export class JournalClock {
  private marks: Mark[] = [];

  /** Notes that an event of this time came in now. */
  note(journalUs: number, wallMs: number): void {
    const last = this.marks.at(-1);
    if (last && (wallMs - last.wall < 500 || journalUs < last.journal)) {
      if (journalUs > last.journal && this.marks.length === 1) last.journal = journalUs;
      return;
    }
    this.marks.push({ journal: journalUs, wall: wallMs });
    while (this.marks.length > 2 && wallMs - (this.marks[0]?.wall ?? 0) > WINDOW_MS)
      this.marks.shift();
  }

  /** Resets the estimate, because another daemon may answer now. */
  reset(): void {
    this.marks = [];
  }

  /** How many seconds of the journal pass in a second; 1 until it is known. */
  rate(): number {
    const first = this.marks[0];
    const last = this.marks.at(-1);
    if (!first || !last || last.wall - first.wall < 3000) return 1;
    const rate = (last.journal - first.journal) / 1000 / (last.wall - first.wall);
    return Math.abs(rate - 1) < 0.1 ? 1 : rate;
  }

  /** The journal's time now, in microseconds. */
  now(wallMs: number): number {
    const last = this.marks.at(-1);
    if (!last) return wallMs * 1000;
    const passed = Math.min(wallMs - last.wall, SILENCE_MS);
    const estimate = last.journal + passed * 1000 * this.rate();
    return this.rate() === 1 ? Math.max(estimate, wallMs * 1000) : estimate;
  }
}

export const journalClock = new JournalClock();

/** The journal's time now, in microseconds. */
export function journalNow(): number {
  return journalClock.now(Date.now());
}
