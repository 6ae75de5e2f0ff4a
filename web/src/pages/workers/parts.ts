// What is known of a worker's memory and cache.
import type { MemoryReport, WorkerView } from "../../api/types";
import { USES } from "../../model/states";

/** The parts of a worker's memory at present, in the order of the ledger. */
export function memoryParts(memory: MemoryReport["workers"][number] | undefined) {
  return USES.filter((use) => use.use !== "unused").map((use) => ({
    label: use.label,
    state: use.state,
    value: memory?.tokens_now[use.use] ?? 0,
  }));
}

/** The share of prompt tokens that the engine says it found in its cache. */
export function hitRateOf(worker: WorkerView): number | null {
  const load = worker.engine_load;
  return load?.prompt_tokens_total && load.cached_tokens_total !== null
    ? (load.cached_tokens_total ?? 0) / load.prompt_tokens_total
    : null;
}
