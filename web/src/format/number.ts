// Numbers for people: grouped, with units, never more digits than carry meaning.

const grouped = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });

/** A whole number with groups of thousands. */
export function count(value: number | null | undefined): string {
  return value === null || value === undefined || !Number.isFinite(value)
    ? "–"
    : grouped.format(value);
}

/** A number with three digits and a unit of size, such as 12.3k. */
export function short(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size < 1000) return trim(value, size < 10 ? 2 : size < 100 ? 1 : 0);
  const units = ["k", "M", "G", "T", "P"];
  let scaled = value;
  let unit = "";
  for (const next of units) {
    scaled /= 1000;
    unit = next;
    if (Math.abs(scaled) < 999.5) break;
  }
  return trim(scaled, Math.abs(scaled) < 10 ? 2 : Math.abs(scaled) < 100 ? 1 : 0) + unit;
}

function trim(value: number, digits: number): string {
  return String(Number(value.toFixed(digits)));
}

/** A share as per cent. */
export function percent(share: number | null | undefined, digits = 0): string {
  if (share === null || share === undefined || !Number.isFinite(share)) return "–";
  return `${(share * 100).toFixed(digits)} %`;
}

/** A size in bytes. */
export function bytes(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let scaled = value;
  let at = 0;
  while (scaled >= 1024 && at < units.length - 1) {
    scaled /= 1024;
    at += 1;
  }
  return `${trim(scaled, at === 0 || scaled >= 100 ? 0 : 1)} ${units[at]}`;
}

/** "1 step", "2 steps". */
export function plural(value: number, noun: string, many = `${noun}s`): string {
  return `${count(value)} ${value === 1 ? noun : many}`;
}
