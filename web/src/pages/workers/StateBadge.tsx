// What an operator lets a worker do, as a mark.
import type { WorkerView } from "../../api/types";
import { count } from "../../format/number";
import { visibleText } from "../../format/text";
import { Badge } from "../../ui/State";
import { stateOf, WORKER_STATES } from "./parts";

/** States that say themselves why there are no steps. */
const RESTS = ["asleep", "paused", "fenced"];

export function StateBadge({ worker }: { worker: WorkerView }) {
  const state = stateOf(worker);
  const { tone = "neutral", meaning = "" } = WORKER_STATES[state] ?? {};
  const stuck = Boolean(worker.problem) && !RESTS.includes(state);
  return (
    <span className="nowrap" title={worker.problem ? visibleText(worker.problem, 300) : meaning}>
      <Badge tone={stuck ? "bad" : tone}>
        {state}
        {state === "draining" ? ` · ${count(worker.programs)} left` : ""}
        {stuck ? " · stuck" : ""}
      </Badge>
    </span>
  );
}
