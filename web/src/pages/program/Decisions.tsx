// Each decision about a program, in words.
import { Link } from "@tanstack/react-router";
import { useVirtualizer } from "@tanstack/react-virtual";
import { Fragment, useMemo, useRef, useState } from "react";
import type { DecisionView } from "../../api/types";
import { explain } from "../../model/explain";
import { Choice } from "../../ui/Choice";
import { Json } from "../../ui/Json";
import { Empty } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";
import type { ProgramData } from "./useProgramData";

const KINDS: Record<string, "neutral" | "good" | "warn" | "accent"> = {
  place: "good",
  restore: "good",
  prefetch: "good",
  pause: "warn",
  preempt: "warn",
  offload: "accent",
  migrate: "accent",
  route: "neutral",
};

export function Decisions({ data }: { data: ProgramData }) {
  const [kind, setKind] = useState("");
  const [newestFirst, setNewestFirst] = useState(true);
  const kinds = useMemo(
    () => [...new Set(data.decisions.map((one) => one.kind))],
    [data.decisions],
  );
  const shown = useMemo(() => {
    const wanted = data.decisions.filter((one) => kind === "" || one.kind === kind);
    return newestFirst ? wanted.reverse() : wanted;
  }, [data.decisions, kind, newestFirst]);
  if (data.decisions.length === 0) {
    return (
      <Empty icon="policies" title="No decision on record">
        <p>A decision is recorded when the program is placed, paused, restored or moved.</p>
      </Empty>
    );
  }
  return (
    <>
      <div className="toolbar">
        <Choice
          label="Kind of decision"
          all="All decisions"
          value={kind}
          options={kinds.map((one) => [one, one])}
          onChange={setKind}
        />
        <label className="check">
          <input
            type="checkbox"
            checked={newestFirst}
            onChange={(event) => setNewestFirst(event.target.checked)}
          />
          Newest first
        </label>
      </div>
      <DecisionList decisions={shown} nameOf={data.names.nameOf} />
    </>
  );
}

interface Names {
  nameOf: (worker: string) => string;
}

function DecisionList({ decisions, nameOf }: Names & { decisions: DecisionView[] }) {
  const scroller = useRef<HTMLDivElement>(null);
  const virtual = useVirtualizer({
    count: decisions.length,
    getScrollElement: () => scroller.current,
    estimateSize: () => 104,
    overscan: 4,
  });
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: a scrolling area must be reachable
    <div className="decisions" ref={scroller} tabIndex={0}>
      <ol style={{ height: virtual.getTotalSize() }}>
        {virtual.getVirtualItems().map((item) => {
          const decision = decisions[item.index];
          if (!decision) return null;
          return (
            <li
              key={`${decision.seq}-${decision.kind}`}
              ref={virtual.measureElement}
              data-index={item.index}
              style={{ transform: `translateY(${item.start}px)` }}
            >
              <Decision decision={decision} nameOf={nameOf} />
            </li>
          );
        })}
      </ol>
    </div>
  );
}

function Decision({ decision, nameOf }: Names & { decision: DecisionView }) {
  const words = explain(decision, nameOf);
  return (
    <article className="decision">
      <header>
        <Badge tone={KINDS[decision.kind] ?? "neutral"}>{decision.kind}</Badge>
        <strong>{words.title}</strong>
        <span className="dim">
          <Time us={decision.at_us} exact />
        </span>
      </header>
      <p>
        {words.because} <span className="soft">{words.figures}</span>
      </p>
      {words.otherwise ? <p className="soft">{words.otherwise}</p> : null}
      <footer className="dim">
        <span>
          by <Text value={decision.policy} max={80} />
        </span>
        {words.score !== null ? <span>score {words.score}</span> : null}
        {words.placedBy ? (
          <span>
            worker chosen by <Text value={words.placedBy} max={80} />
          </span>
        ) : null}
        {words.alternatives.length > 0 ? (
          <span>
            also in question:{" "}
            {words.alternatives.map((one, at) => (
              <Fragment key={one.program}>
                {at > 0 ? ", " : ""}
                <Other program={one.program} name={one.key} /> ({one.score})
              </Fragment>
            ))}
          </span>
        ) : null}
        <details>
          <summary>Inputs</summary>
          <Json value={decision.why} />
        </details>
      </footer>
    </article>
  );
}

/** Another program: a link where its name is known. */
function Other({ program, name }: { program: number; name: string | undefined }) {
  if (name === undefined) return `#${program}`;
  return (
    <Link to="/programs/$program" params={{ program: name }}>
      <Text value={name} max={60} />
    </Link>
  );
}
