// What the console says about the weights of engines: phases, reasons, remedies, and what each
// update cost.
import type { HoldingView, JobWeights, WeightsView } from "../api/types";
import { type Interval, union } from "./scale";
import type { State } from "./states";
import type { Lane, Span } from "./timeline";
import { isSame, STATE_OF, type WeightsCall } from "./weightsEngine";
import type { WeightsHistory, WeightsUpdate } from "./weightsReplay";

/** Colours of versions in their order. */
export const VERSION_TOKENS = ["decode", "tool", "offloaded", "paused", "migrating"];
/** The colour of what engines came with. */
const FIRST_TOKEN = "shared";
/** Updates that are shown as lanes unless others are chosen: their versions differ in colour. */
export const UPDATES_SHOWN = 4;
/** Time around updates, as a share of their own. */
const MARGIN = 0.15;
const MARGIN_MIN_US = 20_000;

/** The name of the colour of a version. */
export function versionToken(weights: WeightsView | null): string {
  if (!weights) return FIRST_TOKEN;
  const place = (weights.version + 2 * weights.lineage) % VERSION_TOKENS.length;
  return VERSION_TOKENS[place] ?? FIRST_TOKEN;
}

/** A version in words; another lineage than the first is named. */
export function versionText(weights: WeightsView | null | undefined): string {
  if (!weights) return "what it came with";
  const { version, lineage } = weights;
  return lineage > 0 ? `version ${version} of lineage ${lineage}` : `version ${version}`;
}

export interface PhaseText {
  state: State;
  label: string;
}

/** How far an engine is, in words. */
export function phaseOf({ state, call, fenced }: HoldingView): PhaseText {
  const called = call ? STATE_OF[call as WeightsCall] : undefined;
  if (called && (called !== "preparing" || !fenced))
    return { state: called, label: `${state}, ${call} under way` };
  if (state === "ready") return { state: fenced ? "pausing" : "preparing", label: "ready" };
  if (state === "resuming") return { state: "awaiting", label: "loaded, waits for the others" };
  if (state === "held" && !fenced) return { state: "held", label: "held" };
  return { state: "fenced", label: state === "held" ? "fenced" : `${state}, fenced` };
}

/** Whether a job's trainer drives the updates: then no folder is on record. */
function isDriven({ serving, update, last }: JobWeights): boolean {
  return (update?.weights ?? serving ?? last?.weights)?.folder === "";
}

/** Why an engine gets no steps, and what has to happen; null if it gets steps. */
export function reasonOf(
  holding: HoldingView,
  weights: JobWeights,
): { cause: string; remedy: string } | null {
  if (!holding.fenced) return null;
  const { serving, update, job } = weights;
  const behind = update?.behind.find(({ worker }) => worker === holding.worker);
  const cause = holding.cause ?? behind?.cause;
  const isLost = ["torn", "unknown"].includes(holding.state);
  if (update && !behind && !isLost)
    return {
      cause: cause ?? `${versionText(update.weights)} is being loaded`,
      remedy: "It gets steps again once the update is over.",
    };
  if (isDriven(weights))
    return {
      cause: cause ?? `it has not proven that it has ${versionText(serving ?? update?.weights)}`,
      remedy: "Its trainer has to pause it and load it as a whole: treadle does not load it.",
    };
  if (update)
    return {
      cause: cause ?? "it was left behind",
      remedy: "It is loaded as a whole once the update is over.",
    };
  if (!serving)
    return {
      cause: cause ?? "no version is in service",
      remedy: `Publish a version: treadle weights publish FOLDER --job ${job} --version N`,
    };
  return {
    cause: cause ?? `it has not proven that it has ${versionText(serving)}`,
    remedy: `treadle loads ${versionText(serving)} there as a whole, and tries again at intervals from 5 s to 5 minutes. If the reason stays, mend or restart the engine.`,
  };
}

export interface UpdateRow {
  key: string;
  weights: WeightsView;
  rolling: boolean;
  /** Its trainer paused and loaded the engines. */
  driven: boolean;
  /** Null if the journal does not have it any more. */
  began: number | null;
  ended: number | null;
  /** How far it is; null once it is over. */
  stage: string | null;
  tookUs: number | null;
  /** The longest pause of an engine, and that of all together. */
  pausedMaxUs: number | null;
  pausedSumUs: number | null;
  exposedUs: number | null;
  held: number;
  behind: { worker: number; cause: string }[];
}

/** The updates, the newest first. What the daemon says of the last one counts. */
export function updateRows(
  history: WeightsHistory,
  weights: JobWeights | null,
  now: number,
): UpdateRow[] {
  const rows = history.updates.map((one) => rowOf(one, now));
  const last = weights?.last;
  const newest = rows.at(-1);
  if (newest && newest.stage !== null && weights?.update) newest.stage = weights.update.stage;
  if (newest && newest.stage !== null && weights && !weights.update) newest.stage = null;
  if (!last) return rows.toReversed();
  const told = {
    tookUs: last.took_s * 1e6,
    exposedUs: last.exposed_s * 1e6,
    held: last.held,
    behind: last.behind,
  };
  const own = rows.findLast((row) => row.stage === null && isSame(row.weights, last.weights));
  if (own) {
    Object.assign(own, told);
    if (own.began !== null) own.ended = own.began + told.tookUs;
  } else {
    const unknown = { began: null, ended: null, pausedMaxUs: null, pausedSumUs: null };
    const { name } = last.weights;
    rows.push({
      ...{ key: `last-${name}`, weights: last.weights, rolling: false, driven: false, stage: null },
      ...unknown,
      ...told,
    });
  }
  return rows.toReversed();
}

function rowOf(update: WeightsUpdate, now: number): UpdateRow {
  const { seq, weights, rolling, began, ended, fenced, held } = update;
  const end = ended ?? now;
  const paused = [...update.paused.values()];
  return {
    ...{
      key: String(seq),
      weights,
      rolling,
      driven: update.stage === "driven",
      began,
      ended,
      held,
    },
    stage: ended === null ? update.stage : null,
    tookUs: end - began,
    pausedMaxUs: paused.length > 0 ? Math.max(...paused) : null,
    pausedSumUs: paused.length > 0 ? paused.reduce((sum, one) => sum + one, 0) : null,
    exposedUs: fenced === null ? 0 : end - fenced,
    behind: [...update.behind].map(([worker, cause]) => ({ worker, cause })),
  };
}

export interface WeightsLanes extends Interval {
  lanes: Lane[];
  /** What is not folded. */
  busy: Interval[];
}

/** The lanes of the engines, from the first of these updates to the end of the last. */
export function lanesOf(
  history: WeightsHistory,
  rows: UpdateRow[],
  now: number,
  nameOf: (worker: string) => string,
): WeightsLanes | null {
  const shown = rows.flatMap(({ began, ended }) =>
    began === null ? [] : [{ from: began, to: ended ?? now }],
  );
  if (shown.length === 0) return null;
  const isNewest = rows.some((row) => row.key === String(history.updates.at(-1)?.seq));
  const around = shown.map(({ from, to }) => {
    const margin = Math.max((to - from) * MARGIN, MARGIN_MIN_US);
    return { from: from - margin, to: to + margin };
  });
  const from = Math.min(...around.map((one) => one.from));
  const to = isNewest ? now : Math.max(...around.map((one) => one.to));
  const lanes = [...history.engines].map(([worker, spans]) => {
    const lasting = spans.map((span) =>
      span.open ? { ...span, to: Math.max(span.to, now) } : span,
    );
    const inSight = lasting.filter((span) => span.to > from && span.from < to);
    const label = nameOf(String(worker));
    return { id: String(worker), label, spans: inSight.map((one) => cut(one, from, to)) };
  });
  const changing = lanes.flatMap(({ spans }) => spans.filter((span) => span.state !== "held"));
  const busy = union([...around, ...changing].map((one) => cut(one, from, to)));
  return { from, to: Math.max(to, from + 1), lanes, busy };
}

function cut<T extends Interval>(one: T, from: number, to: number): T {
  return { ...one, from: Math.max(from, one.from), to: Math.min(to, one.to) };
}

/** The versions and states of lanes, for a legend. */
export function legendOf(lanes: Lane[]): { token: string; label: string }[] {
  const found = new Map<string, string>();
  const isVersion = (span: Span) => span.token !== undefined;
  for (const span of lanes.flatMap((lane) => lane.spans).filter(isVersion))
    if (span.token) found.set(`${span.token} ${span.label}`, span.label);
  return [...found].map(([key, label]) => ({ token: key.split(" ")[0] ?? "", label }));
}
