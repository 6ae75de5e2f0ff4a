// How a step went, in a word.
import type { StepView } from "../../api/types";
import { visibleText } from "../../format/text";
import { isFailed } from "../../model/timeline";
import { Badge } from "../../ui/State";

export function Outcome({ step }: { step: StepView }) {
  if (!step.outcome) return <Badge tone="accent">{step.worker ? "running" : "queued"}</Badge>;
  return (
    <Badge tone={isFailed(step.outcome) ? "bad" : "neutral"}>{visibleText(step.outcome, 40)}</Badge>
  );
}
