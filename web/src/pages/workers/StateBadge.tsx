// What an operator lets a worker do, as a mark.
import type { WorkerView } from "../../api/types";
import { count } from "../../format/number";
import { Badge } from "../../ui/State";
import { stateOf, WORKER_STATES } from "./parts";

export function StateBadge({ worker }: { worker: WorkerView }) {
  const state = stateOf(worker);
  const { tone = "neutral", meaning = "" } = WORKER_STATES[state] ?? {};
  return (
    <span className="nowrap" title={meaning}>
      <Badge tone={tone}>
        {state}
        {state === "draining" ? ` · ${count(worker.programs)} left` : ""}
      </Badge>
    </span>
  );
}
