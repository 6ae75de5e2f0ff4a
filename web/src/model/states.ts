// The states of programs and caches: one name, one colour and one meaning on every page.
import type { ProgramView } from "../api/types";

export type State =
  | "queued"
  | "prefill"
  | "decode"
  | "tool"
  | "paused"
  | "offloaded"
  | "migrating"
  | "recompute"
  | "shared"
  | "unused"
  | "failed"
  | "finished"
  | "silent"
  | "life"
  | EngineState;

/** States of an engine by its weights. */
type EngineState =
  | "held"
  | "preparing"
  | "pausing"
  | "loading"
  | "verifying"
  | "clearing"
  | "awaiting"
  | "idle"
  | "resuming"
  | "fenced";

interface StateInfo {
  label: string;
  meaning: string;
}

export const STATES: Record<State, StateInfo> = {
  queued: { label: "Queued", meaning: "A step waits for a worker." },
  prefill: { label: "Prefill", meaning: "The worker computes the prompt." },
  decode: { label: "Decode", meaning: "The worker generates tokens." },
  tool: { label: "Tool", meaning: "A tool call runs; the KV cache stays on the worker." },
  paused: { label: "Paused", meaning: "The program's placement on a worker was released." },
  offloaded: { label: "Offloaded", meaning: "The KV cache is in host memory." },
  migrating: { label: "Moving", meaning: "The KV cache is being moved." },
  recompute: { label: "Recompute", meaning: "A context is computed again." },
  shared: { label: "Shared", meaning: "Prefixes that several programs use." },
  unused: { label: "Unused", meaning: "Memory that is not in use." },
  failed: { label: "Failed", meaning: "It did not succeed." },
  finished: { label: "Finished", meaning: "It is over." },
  silent: { label: "Silent", meaning: "Its client has sent nothing for a long time." },
  life: { label: "Life", meaning: "A program from its beginning to its end, whatever it did." },
  held: { label: "Serves", meaning: "The engine serves the version that it holds." },
  preparing: {
    label: "Prepare",
    meaning: "The engine is asked whether it can be loaded, and serves meanwhile.",
  },
  pausing: {
    label: "Cut and pause",
    meaning: "No step begins; steps that were cut end, and the engine is paused.",
  },
  loading: { label: "Load", meaning: "The paused engine loads the version." },
  verifying: { label: "Verify", meaning: "The engine proves which version it has." },
  clearing: { label: "Clear", meaning: "Caches of other weights are cleared." },
  awaiting: { label: "Loaded", meaning: "The engine has the version and waits for the others." },
  idle: { label: "Waits for trainer", meaning: "The paused engine waits for its trainer's call." },
  resuming: { label: "Resume", meaning: "The engine is told to generate again." },
  fenced: { label: "Fenced", meaning: "The engine gets no steps because of its weights." },
};

/** The uses of KV memory in the ledger, bottom to top, with the state whose colour they have. */
export const USES: { use: string; label: string; state: State }[] = [
  { use: "decode", label: "Decode", state: "decode" },
  { use: "prefill", label: "Prefill", state: "prefill" },
  { use: "recompute", label: "Recompute", state: "recompute" },
  { use: "caching", label: "Held for tools", state: "tool" },
  { use: "transfer", label: "Transfer", state: "migrating" },
  { use: "shared", label: "Shared prefix", state: "shared" },
  { use: "unused", label: "Unused", state: "unused" },
];

/** Time without change after which a program between steps counts as silent. */
const SILENT_US = 10 * 60e6;

/** The state that stands for a program as a whole, at a time of the journal. */
export function stateOfProgram(
  { status, phase, ended, updated_at_us }: Standing,
  now: number,
): State {
  if (status === "aborted") return "failed";
  if (ended === "expired") return "silent";
  if (status === "finished") return "finished";
  if (phase === "acting" && now - updated_at_us > SILENT_US) return "silent";
  if (status === "queued" || status === "paused") return status;
  return phase === "acting" ? "tool" : "decode";
}

type Standing = Pick<ProgramView, "status" | "phase" | "ended" | "updated_at_us">;
