// The states that something can be in: one name, one colour and one meaning on every page.

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
  | "finished";

interface StateInfo {
  label: string;
  meaning: string;
}

export const STATES: Record<State, StateInfo> = {
  queued: { label: "Queued", meaning: "A step waits for a worker." },
  prefill: { label: "Prefill", meaning: "The worker computes the prompt." },
  decode: { label: "Decode", meaning: "The worker generates tokens." },
  tool: { label: "Tool", meaning: "A tool call runs; the KV cache stays on the worker." },
  paused: { label: "Paused", meaning: "The program gave up its place on a worker." },
  offloaded: { label: "Offloaded", meaning: "The KV cache is in host memory." },
  migrating: { label: "Moving", meaning: "The KV cache is on its way." },
  recompute: { label: "Recompute", meaning: "A context is computed again." },
  shared: { label: "Shared", meaning: "Prefixes that several programs use." },
  unused: { label: "Unused", meaning: "Memory that nobody uses." },
  failed: { label: "Failed", meaning: "It did not succeed." },
  finished: { label: "Finished", meaning: "It is over." },
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

/** The state that stands for a program's status and phase. */
export function stateOfProgram(status: string, phase: string): State {
  if (status === "queued") return "queued";
  if (status === "paused") return "paused";
  if (status === "finished") return "finished";
  if (status === "aborted") return "failed";
  return phase === "acting" ? "tool" : "decode";
}
