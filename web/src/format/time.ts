// Times and durations. The daemon's times are microseconds since 1970.

/** A duration, two units at most. */
export function duration(us: number | null | undefined): string {
  if (us === null || us === undefined || !Number.isFinite(us)) return "–";
  const size = Math.abs(us);
  const sign = us < 0 ? "-" : "";
  if (size === 0) return "0 s";
  if (size < 1000) return `${sign}${Math.round(size)} µs`;
  if (size < 1e6) return `${sign}${Number((size / 1e3).toFixed(size < 1e4 ? 1 : 0))} ms`;
  if (size < 60e6) return `${sign}${(size / 1e6).toFixed(size < 10e6 ? 2 : 1)} s`;
  return sign + long(Math.round(size / 1e6));
}

function long(seconds: number): string {
  const parts: [number, string][] = [
    [Math.floor(seconds / 86400), "d"],
    [Math.floor(seconds / 3600) % 24, "h"],
    [Math.floor(seconds / 60) % 60, "min"],
    [seconds % 60, "s"],
  ];
  const first = parts.findIndex(([value]) => value > 0);
  return parts
    .slice(first, first + 2)
    .filter(([value], at) => at === 0 || value > 0)
    .map(([value, unit]) => `${value} ${unit}`)
    .join(" ");
}

/** How long ago, in one unit. */
export function ago(us: number): string {
  const seconds = Math.round(us / 1e6);
  if (seconds < 0) return `in ${ago(-us).replace(" ago", "")}`;
  if (seconds < 2) return "now";
  if (seconds < 60) return `${seconds} s ago`;
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ago`;
  if (seconds < 86400) return `${Math.floor(seconds / 3600)} h ago`;
  return `${Math.floor(seconds / 86400)} d ago`;
}

const clockFormat = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  second: "2-digit",
  hour12: false,
});
const fullFormat = new Intl.DateTimeFormat(undefined, {
  dateStyle: "medium",
  timeStyle: "long",
  hour12: false,
});

/** The local time of day. */
export function clockTime(us: number): string {
  return clockFormat.format(us / 1000);
}

const shortFormat = new Intl.DateTimeFormat(undefined, {
  hour: "2-digit",
  minute: "2-digit",
  hour12: false,
});

/** The local time of day, with seconds only where ticks are close. */
export function tickTime(us: number, distanceUs: number): string {
  return (distanceUs >= 60e6 ? shortFormat : clockFormat).format(us / 1000);
}

/** The local time of day with milliseconds. */
export function preciseTime(us: number): string {
  const milliseconds = String(Math.floor(us / 1000) % 1000).padStart(3, "0");
  return `${clockTime(us)}.${milliseconds}`;
}

/** Date, time and zone, local and in UTC. */
export function fullTime(us: number): string {
  const date = new Date(us / 1000);
  if (Number.isNaN(date.getTime())) return "";
  return `${fullFormat.format(date)} (${date.toISOString()})`;
}
