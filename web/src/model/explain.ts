// Explains a decision in words: the cause, the figures, the alternatives, and what
// would have changed it.
import type { DecisionView } from "../api/types";
import { count, percent, plural, short } from "../format/number";
import { duration } from "../format/time";

export interface Explanation {
  title: string;
  because: string;
  figures: string;
  otherwise: string | null;
  /** Other programs that could have been chosen: those that were gone by then have no name. */
  alternatives: { program: number; key?: string | undefined; score: string }[];
  score: string | null;
  /** The policy that chose the worker, where one did. */
  placedBy: string | null;
}

interface Why {
  placed_by?: string | null;
  because?: string;
  need_tokens?: number;
  used_tokens?: number;
  capacity_tokens?: number | null;
  waited?: number;
  score?: number | null;
  alternatives?: { program: number; key?: string; score: number }[];
}

const TITLES: Record<string, string> = {
  place: "Placed on",
  restore: "Restored on",
  pause: "Paused, off",
  route: "Step sent to",
  migrate: "Cache to be moved to",
  preempt: "Step preempted on",
  offload: "Cache offloaded from",
  prefetch: "Cache loaded ahead to",
  prefill: "Prompt computed by",
};

const BECAUSE: Record<string, string> = {
  room_on_worker: "The worker had room.",
  deferral_bound: "It had waited beyond the starvation bound, so it went first.",
  memory_pressure: "The programs on the worker needed more than its high watermark.",
  long_tool_call: "Its tool call has lasted too long for its cache to be worth keeping.",
  room_for_deferred: "Room was made for a program that had waited beyond the starvation bound.",
  worker_gone: "Its worker was lost or removed.",
  worker_draining: "Its worker is being drained: programs leave it.",
  plain_routing: "Plain routing: memory is not considered in this mode.",
  routed: "The placement policy chose this worker for the step.",
  faster_worker:
    "A faster worker had room and no program waited: its remaining tokens take much less time there.",
  class_has_room:
    "The hardware that its job prefers for it had room: its remaining tokens take less time there.",
  rank_changed: "Its predicted length puts it among the programs of another worker.",
  more_urgent: "A more urgent step waited for the worker.",
  long_idleness: "Its tool call is expected to last longer than holding the memory is worth.",
  tool_about_to_end: "Its tool is expected to return soon, and there is room.",
  long_prompt:
    "Its prompt would have delayed the answers beside it by more time than this worker needs for it.",
  adopted: "An earlier scheduler had placed it there and stopped before that was on record.",
};

/** Explains why a decision was taken. */
export function explain(decision: DecisionView, nameOf: (worker: string) => string): Explanation {
  const why = decision.why as Why;
  const worker = decision.worker ? nameOf(decision.worker) : "a worker";
  const cause = why.because ?? "";
  return {
    title: `${TITLES[decision.kind] ?? decision.kind} ${worker}`,
    because: BECAUSE[cause] ?? cause.replaceAll("_", " "),
    figures: figures(decision.kind, why),
    otherwise: otherwise(cause, why),
    alternatives: (why.alternatives ?? []).map((one) => ({ ...one, score: short(one.score) })),
    score: typeof why.score === "number" ? short(why.score) : null,
    placedBy: why.placed_by ?? null,
  };
}

/** Decisions that release a program's memory. */
const LEAVING = ["pause", "offload", "preempt"];

function figures(kind: string, why: Why): string {
  const parts: string[] = [];
  if (why.need_tokens !== undefined) {
    const verb = LEAVING.includes(kind) ? "took up" : "needed";
    parts.push(`It ${verb} ${plural(why.need_tokens, "token")}.`);
  }
  if (why.used_tokens !== undefined) {
    const of = why.capacity_tokens
      ? `${count(why.used_tokens)} of ${count(why.capacity_tokens)} tokens (${percent(why.used_tokens / why.capacity_tokens)})`
      : plural(why.used_tokens, "token");
    parts.push(`${of} were in use on the worker.`);
  }
  if (why.waited) {
    const what =
      kind === "place" || kind === "restore" ? "Its step had waited" : "It had been away";
    parts.push(`${what} ${duration(why.waited)}.`);
  }
  return parts.join(" ");
}

function otherwise(cause: string, why: Why): string | null {
  const { need_tokens: need, used_tokens: used, capacity_tokens: capacity } = why;
  if (need === undefined || used === undefined || !capacity) return CAUSE_ONLY[cause] ?? null;
  const free = capacity - used;
  if (cause === "room_on_worker" && free > need) {
    return `With ${plural(free - need, "token")} more in use there it would have had to wait; with fewer, if the low watermark is below 100 %.`;
  }
  if (cause === "room_on_worker") {
    return used === 0
      ? "An empty worker takes any program; with another one there it would have had to wait."
      : "It needed at least all the free memory. That is allowed if at most one program is working there, or if a priority policy orders the steps; otherwise it would have had to wait.";
  }
  if (cause === "memory_pressure" && used > capacity) {
    return `It would have stayed with ${plural(used - capacity, "token")} fewer in use there.`;
  }
  return CAUSE_ONLY[cause] ?? null;
}

const CAUSE_ONLY: Record<string, string> = {
  memory_pressure:
    "It would have stayed if the policy had put another program first in its pause order.",
  long_idleness: "It would have stayed if calls of this tool had lately been shorter.",
  deferral_bound: "Below the starvation bound it would have waited for its turn in the queue.",
  long_tool_call: "It would have stayed if its tool had returned earlier.",
  room_for_deferred: "It would have stayed if no program had waited beyond the starvation bound.",
  plain_routing: "In the mode program-aware, memory and waiting would have counted.",
  more_urgent: "It would have run on if the priority policy had scored the waiting step lower.",
  rank_changed: "It would stay with another prediction of its length.",
  room_on_worker:
    "The worker's capacity is unknown; if it were known, and the worker full, it would have had to wait.",
  worker_gone: "It would have stayed if the worker had kept answering and had not been removed.",
  worker_draining:
    "It would have stayed if the worker had been cordoned instead; it may come back once the worker is active.",
  routed:
    "It would have stayed where it was if the placement policy had scored that worker higher.",
  faster_worker:
    "It would have stayed where its cache was if that worker had been less than twice as slow, or if it had been expected to generate less.",
  class_has_room:
    "It would have stayed where its cache was if its job preferred no other class of hardware, or if it had been expected to generate less.",
  tool_about_to_end:
    "It would have stayed in host memory if its tool had been expected to take longer, or if a program had waited for that room.",
  long_prompt:
    "It would have been computed by its own worker if less of it had been new, or if fewer steps had been running there.",
  adopted:
    "It would have been decided anew if its step had not been running there when this scheduler began.",
};
