// How long a policy's call may take. Live calls are bounded by time and not by fuel; the API does
// not tell the bounds, so these are the defaults.

/** Of calls that scheduling waits for: `plugins.hot_deadline_ms` (docs/configuration.md). */
const HOT = "2 ms";
/** Of the others; no key sets it. */
const BACKGROUND = "2 s";

/** The deadlines of each world's calls. */
export const DEADLINES: Record<string, string> = {
  eviction: HOT,
  priority: HOT,
  prediction: BACKGROUND,
  reward: BACKGROUND,
  placement: `${HOT}, migrate ${BACKGROUND}`,
  allocation: `${HOT}, parallelism ${BACKGROUND}`,
};

/** Upper bounds of the buckets of calls, as the daemon counts; a last one has no bound. */
export const BOUNDS_US = [1, 2, 5, 10, 20, 50, 100, 250, 1000, 2500, 10_000, 100_000];

/** The bound that a share of the calls kept; infinite where they are beyond the last one. */
export function quantileUs(counts: number[], share: number): number | null {
  const total = counts.reduce((sum, value) => sum + value, 0);
  if (total === 0) return null;
  let before = 0;
  const at = counts.findIndex((value) => {
    before += value;
    return before >= share * total;
  });
  return BOUNDS_US[at] ?? Number.POSITIVE_INFINITY;
}
