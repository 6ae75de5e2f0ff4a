// A member's sample: its figures, its turns, and its tokens page by page.
import type { MemberStep, MemberSteps, SampledRange, StepSpan } from "../api/sample";
import { count } from "../format/number";

/** Tokens on a page. */
export const PAGE_TOKENS = 2000;
/** Steps that a list names before it counts the rest. */
const NAMED_STEPS = 8;

export interface SampleFigures {
  /** Tokens of all sequences. */
  context: number;
  /** Those of them that are trained. */
  trained: number;
  /** Versions that sampled the steps, ascending. */
  versions: number[];
  /** Trained tokens in ranges that more than one version may have sampled. */
  mixed: number;
}

export function figuresOf({ steps, sequences }: MemberSteps): SampleFigures {
  const ranges = sequences.flatMap((sequence) => sequence.sampled);
  const trainedSteps = new Set(ranges.map(({ step }) => step));
  const spans = steps.flatMap(spansOf);
  return {
    context: sequences.reduce((sum, { ids }) => sum + ids.length, 0),
    trained: ranges.reduce((sum, { start, end }) => sum + end - start, 0),
    versions: [...new Set(spans.flatMap(({ version, newest }) => [version, newest]))].sort(
      (a, b) => a - b,
    ),
    mixed: steps
      .filter(({ number }) => trainedSteps.has(number))
      .flatMap(spansOf)
      .reduce((sum, span) => sum + (isMixed(span) ? span.end - span.start : 0), 0),
  };
}

/** The versions of ranges of a step's output. */
function spansOf({ versions = [], version, output }: MemberStep): StepSpan[] {
  return versions.length > 0
    ? versions
    : [{ start: 0, end: output.length, version, newest: version }];
}

function isMixed({ version, newest }: Pick<StepSpan, "version" | "newest">): boolean {
  return newest !== version;
}

/** "3", or "3 to 4, mixed" if the engine did not say where it changed. */
function versionText({ version, newest }: Pick<StepSpan, "version" | "newest">): string {
  return version === newest ? count(version) : `${count(version)} to ${count(newest)}, mixed`;
}

/** What each kind of log-probabilities means. */
const LOGPROBS: Record<string, string> = {
  raw: "The model's own scores, before temperature and top-k.",
  temperature: "After the temperature, before top-k.",
  processed: "After the temperature and top-k, as the tokens were drawn.",
  mixed: "Its steps have log-probabilities of different kinds.",
  unknown: "An engine did not show which kind it reports.",
};

export function logprobsText(kind: string): string {
  return LOGPROBS[kind] ?? "A kind that this console does not know.";
}

/** What each kind of break means. */
const BREAKS: Record<string, string> = {
  rerendered: "The client sent the answer back in other tokens, or not at all.",
  thinking_dropped: "The client sent only the end of the answer back, without its thinking.",
  edited: "An earlier part of the prompt changed.",
  compacted: "The prompt is shorter than an earlier one that begins like it.",
  volatile: "The prompts differ near the start, such as in a date or a counter.",
  repeated: "The same prompt was sent again.",
  other_agent: "Only the start of the template is common: another agent, a title, a summary.",
  other: "The prompt has nothing in common with earlier ones.",
};

export function breakText(kind: string): string {
  return BREAKS[kind] ?? "The step continues no earlier one.";
}

/** Steps by what is said of them, what is said of most steps first. */
export function stepsBy(said: [string, number][]): [string, number[]][] {
  const groups = new Map<string, number[]>();
  for (const [what, step] of said) {
    const steps = groups.get(what);
    if (steps) steps.push(step);
    else groups.set(what, [step]);
  }
  return [...groups].sort(([, a], [, b]) => b.length - a.length);
}

/** "step 3", or "steps 3, 5 and 12 more". */
export function stepList(steps: number[]): string {
  const named = steps.slice(0, NAMED_STEPS).map((step) => count(step));
  const rest = steps.length - named.length;
  return `${steps.length === 1 ? "step" : "steps"} ${named.join(", ")}${rest > 0 ? ` and ${count(rest)} more` : ""}`;
}

export interface Turn extends Pick<MemberStep, "number"> {
  /** The versions of its tokens, in words. */
  versions: string;
  /** The tools whose results stand before it, as far as its messages are kept and name them. */
  tools: string[];
  /** What stands before its tokens: observation, or context if its sequence has no earlier turn. */
  before: { what: "prompt" | "observation" | "context"; tokens: number };
  sampled: number;
  /** Mean log-probability of its tokens; null without any. */
  logprob: number | null;
  /** The sequence that trains it, and where; null if none does. */
  trained: { sequence: number; start: number } | null;
  /** Why it is not trained, why it begins a sequence, or what is unknown of it. */
  notes: string[];
}

/** The steps of a member, in their order. */
export function turnsOf(
  { steps, sequences, excluded, breaks }: MemberSteps,
  tools: Map<number, string[]> = new Map(),
): Turn[] {
  const places = new Map<number, { sequence: number; start: number; after: number | null }>();
  sequences.forEach(({ sampled }, sequence) => {
    sampled.forEach(({ step, start }, at) => {
      places.set(step, { sequence, start, after: sampled[at - 1]?.end ?? null });
    });
  });
  const reasons = new Map(excluded.map(({ step, reason }) => [step, reason]));
  const kinds = new Map(breaks.map(({ step, kind }) => [step, kind]));
  return steps.map((step, at) => {
    const { number, prompt, output, delivery } = step;
    const place = places.get(number);
    const [reason, kind] = [reasons.get(number), kinds.get(number)];
    const begins = at === 0 || kind !== undefined || place === undefined;
    const before =
      place && place.after !== null
        ? { what: "observation" as const, tokens: place.start - place.after }
        : { what: begins ? ("prompt" as const) : ("context" as const), tokens: prompt.length };
    return {
      ...{ number, before, sampled: output.length, logprob: meanOf(step.logprobs) },
      versions: [...new Set(spansOf(step).map(versionText))].join("; "),
      tools: tools.get(number) ?? [],
      trained: place ? { sequence: place.sequence, start: place.start } : null,
      notes: [
        reason ? `not trained: ${reason}` : "",
        kind ? `begins a sequence: ${kind}` : "",
        delivery === "complete" ? "" : "unknown whether its client got the whole answer",
      ].filter(Boolean),
    };
  });
}

/** Names of tools, those that came more than once with how often. */
export function toolsText(tools: string[]): string {
  const times = new Map<string, number>();
  for (const name of tools) times.set(name, (times.get(name) ?? 0) + 1);
  return [...times].map(([name, n]) => (n > 1 ? `${name} ×${count(n)}` : name)).join(", ");
}

function meanOf(values: (number | null)[]): number | null {
  const known = values.filter((value) => value !== null);
  return known.length > 0 ? known.reduce((sum, value) => sum + value, 0) / known.length : null;
}

/** Tokens in a row, with the ranges of them that steps sampled. */
export interface TokenRow {
  ids: number[];
  sampled: SampledRange[];
}

/** The tokens that a URL names: a sequence by its number, or a step as `step-3`. Without a name that
 *  is known, the first sequence, or the first step if nothing is trained. */
export function rowOf(
  { steps, sequences }: MemberSteps,
  name: string | undefined,
): { name: string; row: TokenRow } | null {
  const [, number] = /^step-(\d+)$/.exec(name ?? "") ?? [];
  const chosen = number ? steps.find((step) => step.number === Number(number)) : undefined;
  const sequence = sequences[Number(name ?? 0)];
  if (!chosen && sequence) return { name: name ?? "0", row: sequence };
  if (!chosen && sequences[0]) return { name: "0", row: sequences[0] };
  const step = chosen ?? steps[0];
  if (!step) return null;
  const { prompt, output } = step;
  const range = { step: step.number, start: prompt.length, end: prompt.length + output.length };
  return { name: `step-${step.number}`, row: { ids: [...prompt, ...output], sampled: [range] } };
}

export interface Token {
  id: number;
  /** Its position in the sequence. */
  at: number;
  /** Who sampled it; null for context. */
  by: { step: number; versions: string; logprob: number | null } | null;
  /** Stands before it: which step begins, and the versions if they are others. */
  mark: string | null;
}

/** The tokens of a page that begins at a position. */
export function pageOf({ steps }: MemberSteps, { ids, sampled }: TokenRow, from: number): Token[] {
  const byNumber = new Map(steps.map((step) => [step.number, step]));
  const tokens: Token[] = ids.slice(from, from + PAGE_TOKENS).map((id, at) => ({
    ...{ id, at: from + at, by: null, mark: null },
  }));
  let earlier: string | undefined;
  for (const { step: number, start, end } of sampled) {
    const step = byNumber.get(number);
    if (!step) continue;
    const { logprobs } = step;
    for (const span of spansOf(step)) {
      const versions = versionText(span);
      const mark = [
        span.start === 0 ? `step ${number}` : "",
        versions === earlier ? "" : `version ${versions}`,
      ];
      const last = Math.min(start + span.end, end, from + tokens.length);
      for (let at = Math.max(start + span.start, from); at < last; at += 1) {
        const token = tokens[at - from];
        if (!token) continue;
        token.by = { step: number, versions, logprob: logprobs[at - start] ?? null };
        if (at === start + span.start) token.mark = mark.filter(Boolean).join(", ") || null;
      }
      earlier = versions;
    }
  }
  return tokens;
}

/** Where the colours of log-probabilities change. */
const EDGES = [0.9, 0.5, 0.1, 0.01].map(Math.log);

/** The colours from the likeliest tokens to the unlikeliest: the least log-probability of each. */
export const SCALE = ["at least -0.1 (90 %)", "-0.7 (50 %)", "-2.3 (10 %)", "-4.6 (1 %)", "less"];

/** The colour of a log-probability as a place in `SCALE`; null without a number. */
export function colorOf(logprob: number | null): number | null {
  if (logprob === null) return null;
  const at = EDGES.findIndex((edge) => logprob >= edge);
  return at < 0 ? EDGES.length : at;
}

/** A log-probability with the digits that people compare. */
export function logprobText(value: number | null): string {
  return value === null ? "–" : String(Number(value.toFixed(3)));
}

/** All that is known of a token, in one line. */
export function tokenText({ id, at, by }: Token): string {
  const place = `${id}, position ${count(at)}`;
  if (!by) return `${place}, context`;
  return `${place}, log-probability ${logprobText(by.logprob)}, version ${by.versions}, step ${by.step}`;
}
