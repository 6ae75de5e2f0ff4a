// A worker's state, memory and cache.
import type { Capabilities, MemoryReport, WorkerView } from "../../api/types";
import { USES } from "../../model/states";

/** The parts of the memory of workers at present, in the order of the ledger. */
export function memoryParts(report: MemoryReport | undefined, workers: WorkerView[]) {
  const own = report?.workers.filter(({ id }) => workers.some((worker) => worker.id === id)) ?? [];
  return USES.filter((use) => use.use !== "unused").map((use) => ({
    label: use.label,
    state: use.state,
    value: own.reduce((sum, { tokens_now }) => sum + (tokens_now[use.use] ?? 0), 0),
  }));
}

/** The share of prompt tokens that the engine says it found in its cache. */
export function hitRateOf(worker: WorkerView): number | null {
  const load = worker.engine_load;
  return load?.prompt_tokens_total && load.cached_tokens_total != null
    ? load.cached_tokens_total / load.prompt_tokens_total
    : null;
}

const ABILITIES: [keyof Omit<Capabilities, "missing">, string][] = [
  ["offload", "keep caches outside of its memory"],
  ["migrate", "send caches to an engine of its kind"],
  ["priorities", "serve the steps with the greatest priority first"],
  ["continues", "stop in the middle of an answer and go on later"],
];

/** Supported and unsupported features of an engine, in words; unknown ones are in neither list. */
export function abilitiesOf(capabilities: Capabilities): { can: string[]; cannot: string[] } {
  const those = (value: boolean) =>
    ABILITIES.filter(([key]) => capabilities[key] === value).map(([, words]) => words);
  return { can: those(true), cannot: those(false) };
}

/** The worker's state, or why its engine takes no steps; "active" from daemons without states. */
export function stateOf(worker: WorkerView): string {
  return worker.state ?? "active";
}

/** Tone and meaning of each state. */
export const WORKER_STATES: Record<
  string,
  { tone: "neutral" | "good" | "warn" | "bad" | "accent"; meaning: string }
> = {
  active: { tone: "neutral", meaning: "It gets programs." },
  cordoned: { tone: "warn", meaning: "It gets no more programs; those that it has stay." },
  draining: { tone: "warn", meaning: "It gets no more programs; those that it has leave it." },
  asleep: { tone: "warn", meaning: "Its engine sleeps: it gets no steps until it is woken." },
  paused: { tone: "warn", meaning: "Its engine is paused: it gets no steps until it resumes." },
  fenced: { tone: "bad", meaning: "It gets no steps because of its weights." },
  drained: { tone: "accent", meaning: "No program is left on it: it can be removed." },
};
