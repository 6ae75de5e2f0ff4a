// A state as a coloured mark with its name.
import { STATES, type State } from "../model/states";

export function StateMark({ state, label }: { state: State; label?: string | undefined }) {
  return (
    <span className="state" title={STATES[state].meaning}>
      <span className={`swatch state-${state}`} aria-hidden="true" />
      {label ?? STATES[state].label}
    </span>
  );
}

/** Good, a warning, bad or neither, in words. */
export function Badge({
  tone = "neutral",
  children,
}: {
  tone?: "neutral" | "good" | "warn" | "bad" | "accent";
  children: React.ReactNode;
}) {
  return <span className={`badge ${tone}`}>{children}</span>;
}
