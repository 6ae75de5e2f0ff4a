// The settings of a run: the daemon's bounds and defaults, and the body of the request.
import type { StartRun, WindowSpec } from "../../api/types";
import { configOf, type Field } from "../../model/schemaForm";
import type { SetSpec } from "../../model/sets";

/** A recorded trace, as it was read from a file. */
export interface Trace {
  name: string;
  text: string;
}

const SETTINGS: Field[] = [
  field("seeds", "integer", 3, "The first leaves all as recorded.", 1, 32),
  field("jitter", "number", 0.05, "How much tools and arrivals vary, as a share.", 0, 0.9),
  field("differences", "integer", 10, "Differing decisions shown for each set.", 0, 200),
];
const KV_TOKENS = "KV memory of each engine, in tokens.";
const OF_JOURNAL: Field[] = [
  field("kv_tokens", "integer", "as recorded", KV_TOKENS, 1),
  field(
    "slot_lag_s",
    "number",
    2,
    "A program that opens within this many seconds after another one's end takes its slot. Raise it if the journal's clock runs faster.",
    0,
    86_400,
  ),
];
const OF_TRACE: Field[] = [
  field("kv_tokens", "integer", "by kv_fraction", `${KV_TOKENS} Instead of kv_fraction.`, 1),
];

/** Settings for running the programs of a trace. */
export const SHAPE: Field[] = [
  field("engines", "integer", 2, "How many engines there are.", 1, 64),
  field("programs", "integer", 64, "Programs that are live at once.", 1, 10_000),
  field("runs", "integer", "four for each", "Programs taken from the trace.", 1, 100_000),
  field("token_divisor", "integer", 4, "Its token counts are divided by this.", 1, 2 ** 32 - 1),
  field(
    "kv_fraction",
    "number",
    0.33,
    "KV memory of the engines together, as a share of what the programs need at their peak.",
    0,
    100,
  ),
];

function field(
  key: string,
  kind: "integer" | "number",
  initial: unknown,
  description: string,
  min: number,
  max?: number,
): Field {
  return { key, kind, initial, description, min, max, required: false, choices: [] };
}

/** Settings of replays of the journal or of a trace. */
export function settingsOf(isTrace: boolean): Field[] {
  return [...SETTINGS, ...(isTrace ? OF_TRACE : OF_JOURNAL)];
}

/** The request for these field texts: of a trace, or else of a window of the journal. */
export function requestOf(
  sets: SetSpec[],
  work: WindowSpec | Trace,
  texts: Record<string, string>,
  profile: unknown,
): StartRun {
  const isTrace = "text" in work;
  const { config } = configOf(settingsOf(isTrace), texts);
  const what = isTrace
    ? { trace: { text: work.text, ...configOf(SHAPE, texts).config } }
    : { window: work };
  return { ...config, sets, ...what, profile } as StartRun;
}
