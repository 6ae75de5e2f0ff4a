// Describes the span under the pointer.
import { duration, fullTime, preciseTime } from "../../format/time";
import { STATES } from "../../model/states";
import type { Lane, Span } from "../../model/timeline";

export interface Hover {
  x: number;
  y: number;
  span: Span | null;
  lane: Lane;
}

export function HoverCard({ hover, width }: { hover: Hover; width: number }) {
  const { span, lane } = hover;
  const left = hover.x > width - 260 ? hover.x - 252 : hover.x + 14;
  return (
    <div className="spans-hover" style={{ left, top: hover.y + 52 }}>
      {span ? (
        <>
          <div className="state">
            <span className={`swatch state-${span.token ?? span.state}`} aria-hidden="true" />
            <strong>{STATES[span.state].label}</strong>
            {span.step === undefined ? null : <span className="dim">step {span.step}</span>}
          </div>
          {span.label === STATES[span.state].label ? null : <div>{span.label}</div>}
          <div className="soft">
            {duration(span.to - span.from)}
            {span.open ? " so far" : ""} from {preciseTime(span.from)}
          </div>
          <div className="dim">{fullTime(span.from)}</div>
        </>
      ) : null}
      <div className="dim clip">{lane.label}</div>
    </div>
  );
}
