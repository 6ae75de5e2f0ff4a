// The part of the journal that a what-if run repeats: from the entered text to the request.
import type { WindowSpec } from "../api/types";
import { count } from "../format/number";
import { clockTime } from "../format/time";

export type Span = "last" | "times" | "events" | "all";

/** The entered texts of the fields. */
export interface WindowForm {
  span: Span;
  minutes: string;
  /** Local times, as `datetime-local` has them. */
  fromTime: string;
  toTime: string;
  fromSeq: string;
  toSeq: string;
  job: string;
}

/** What the journal holds. */
export interface Extent {
  firstSeq: number;
  lastSeq: number;
  firstUs: number;
  lastUs: number;
}

type Errors = Partial<Record<keyof WindowForm, string>>;

/** Maximum number of events of a run. */
const EVENTS_MAX = 2_000_000;

/** The window, and the error of each field. */
export function windowOf(
  form: WindowForm,
  extent: Extent | undefined,
  nowUs: number,
): { window: WindowSpec; errors: Errors } {
  const errors: Errors = {};
  const window: WindowSpec = form.job === "" ? {} : { job: form.job };
  if (form.span === "last") {
    const minutes = Number(form.minutes);
    if (minutes > 0) window.from_us = Math.max(0, Math.round(nowUs - minutes * 60e6));
    else errors.minutes = "Enter a number above 0.";
  }
  if (form.span === "times") {
    const { firstUs, lastUs } = extent ?? {};
    const ends = readEnds(form, ["fromTime", "toTime"], timeOf, errors);
    checkEnds(["fromTime", "toTime"], ends, [firstUs, lastUs], clockTime, errors);
    if (ends[0] !== null) window.from_us = ends[0];
    if (ends[1] !== null) window.to_us = ends[1];
  }
  if (form.span === "events") {
    const { firstSeq, lastSeq } = extent ?? {};
    const ends = readEnds(form, ["fromSeq", "toSeq"], numberOf, errors);
    checkEnds(["fromSeq", "toSeq"], ends, [firstSeq, lastSeq], count, errors);
    if (ends[0] !== null) window.from_seq = ends[0];
    if (ends[1] !== null) window.to_seq = ends[1];
  }
  if (extent && (form.span === "events" || form.span === "all")) {
    const from = Math.max(window.from_seq ?? 0, extent.firstSeq);
    const events = Math.min(window.to_seq ?? extent.lastSeq, extent.lastSeq) - from + 1;
    if (events > EVENTS_MAX)
      errors[form.span === "all" ? "span" : "toSeq"] =
        `These are ${count(events)} events, and ${count(EVENTS_MAX)} are replayed at most.`;
  }
  return { window, errors };
}

type Ends = ["fromTime", "toTime"] | ["fromSeq", "toSeq"];

/** Both ends, null for empty fields. */
function readEnds(
  form: WindowForm,
  fields: Ends,
  read: (text: string) => number | null | undefined,
  errors: Errors,
): [number | null, number | null] {
  if (fields.every((field) => form[field].trim() === ""))
    errors[fields[0]] = "Enter at least one end.";
  const end = (field: Ends[number]) => {
    const value = read(form[field]);
    if (value === undefined) errors[field] = "This can't be read.";
    return value ?? null;
  };
  return [end(fields[0]), end(fields[1])];
}

/** Checks that the ends are in order and inside the journal. */
function checkEnds(
  [first, last]: Ends,
  [from, to]: [number | null, number | null],
  [begin, end]: [number | undefined, number | undefined],
  shown: (value: number) => string,
  errors: Errors,
): void {
  const [low, high] = [from ?? Number.NEGATIVE_INFINITY, to ?? Number.POSITIVE_INFINITY];
  if (low > high) errors[last] = "The end is before the beginning.";
  if (end !== undefined && low > end) errors[first] = `The journal ends with ${shown(end)}.`;
  if (begin !== undefined && high < begin)
    errors[last] = `The journal begins with ${shown(begin)}.`;
}

/** Null for an empty text, undefined for an invalid one. */
function timeOf(text: string): number | null | undefined {
  if (text.trim() === "") return null;
  const milliseconds = new Date(text).getTime();
  return Number.isFinite(milliseconds) ? milliseconds * 1000 : undefined;
}

function numberOf(text: string): number | null | undefined {
  if (text.trim() === "") return null;
  return /^\s*\d{1,15}\s*$/.test(text) ? Number(text) : undefined;
}

/** A time for a field of the kind `datetime-local`. */
export function localTime(us: number): string {
  const date = new Date(us / 1000);
  const local = new Date(date.getTime() - date.getTimezoneOffset() * 60_000);
  return local.toISOString().slice(0, 19);
}

/** A window in words. */
export function windowText(window: WindowSpec): string {
  const ends = (from: string | null, to: string | null) =>
    [from ? `from ${from}` : "", to ? `to ${to}` : ""].filter(Boolean).join(" ");
  const time = (us: number | null | undefined) => (us ? clockTime(us) : null);
  const seq = (value: number | null | undefined) => (value ? count(value) : null);
  const events = ends(seq(window.from_seq), seq(window.to_seq));
  const parts = [
    ends(time(window.from_us), time(window.to_us)),
    events ? `events ${events}` : "",
    window.job ? `job ${window.job}` : "",
  ].filter(Boolean);
  return parts.length > 0 ? parts.join(", ") : "all that was kept";
}
