// Steps that have not ended have no row yet: they are made from the journal's events.
import type { DecisionView, EventView, ProgramView, StepView } from "../api/types";

/** The rows of ended steps, and of those that wait or run. */
export function withOpenSteps(
  steps: StepView[],
  events: EventView[],
  decisions: DecisionView[],
  program: ProgramView,
): StepView[] {
  if (program.ended) return steps;
  const known = new Set(steps.map((step) => step.step));
  const ended = new Set<number>();
  const firstTokens = new Map<number, number>();
  const open: StepView[] = [];
  for (const { kind, at_us, event } of events) {
    const id = (event as { step?: number }).step;
    if (id === undefined) continue;
    if (kind === "step_first_token") firstTokens.set(id, at_us);
    if (["step_finished", "step_failed", "step_cancelled"].includes(kind)) ended.add(id);
    if (kind === "step_arrived" && !known.has(id)) open.push(opened(id, at_us));
  }
  const left = open.filter((step) => !ended.has(step.step));
  const sent = decisions.findLast((one) => one.kind === "place" || one.kind === "restore");
  for (const step of left) {
    const running = program.status === "active" && program.phase === "reasoning";
    if (!running) continue;
    step.dispatched_at_us = Math.max(step.arrived_at_us, sent?.at_us ?? 0);
    step.worker = program.worker ?? null;
    step.first_token_at_us = firstTokens.get(step.step) ?? null;
  }
  return [...steps, ...left];
}

function opened(step: number, at_us: number): StepView {
  return {
    step,
    arrived_at_us: at_us,
    prompt_tokens: 0,
    output_tokens: 0,
    outcome: "open",
    waited_us: 0,
  };
}
