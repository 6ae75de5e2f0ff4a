// A bar that shows parts of a whole.
import { count, percent } from "../format/number";
import type { State } from "../model/states";

interface Part {
  label: string;
  value: number;
  state: State;
}

export function Meter({
  parts,
  total,
  label,
}: {
  parts: Part[];
  total: number | null;
  label: string;
}) {
  const sum = parts.reduce((all, part) => all + part.value, 0);
  const whole = Math.max(total ?? sum, sum, 1);
  const text = parts
    .filter((part) => part.value > 0)
    .map((part) => `${part.label} ${count(part.value)} (${percent(part.value / whole)})`)
    .join(", ");
  return (
    <span className="meter" role="img" aria-label={`${label}: ${text || "empty"}`} title={text}>
      {parts.map((part) =>
        part.value > 0 ? (
          <span
            key={part.label}
            className={`meter-part state-${part.state}`}
            style={{ width: `${(part.value / whole) * 100}%` }}
          />
        ) : null,
      )}
    </span>
  );
}
