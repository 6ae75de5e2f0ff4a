// A program's timeline, with idle time folded unless the whole is wanted.
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { count, plural } from "../../format/number";
import { duration } from "../../format/time";
import { FoldedScale } from "../../model/scale";
import { STATES, type State } from "../../model/states";
import { Empty, Panel } from "../../ui/Panel";
import { SpanCanvas } from "../../ui/spans/SpanCanvas";
import { Text } from "../../ui/Text";
import type { ProgramData } from "./useProgramData";

const ROW_HEIGHT = 30;

export function TimelinePanel({
  data,
  selected,
  onSelect,
}: {
  data: ProgramData;
  selected: number | null;
  onSelect: (step: number | null) => void;
}) {
  const { idle } = useSearch({ from: "/programs/$program" });
  const navigate = useNavigate({ from: "/programs/$program" });
  const { timeline } = data;
  const whole = idle === "shown";
  const scale = useMemo(
    () => new FoldedScale(timeline.from, timeline.to, whole ? null : timeline.busy),
    [timeline, whole],
  );
  const folded = scale.folds.reduce((sum, fold) => sum + fold.to - fold.from, 0);
  return (
    <Panel
      title="Timeline"
      note={
        folded > 0
          ? `${plural(scale.folds.length, "idle stretch", "idle stretches")} folded (${duration(folded)})`
          : undefined
      }
      actions={
        <label className="check">
          <input
            type="checkbox"
            checked={!whole}
            onChange={(event) =>
              void navigate({
                search: (old) => ({ ...old, idle: event.target.checked ? undefined : "shown" }),
                replace: true,
                resetScroll: false,
              })
            }
          />
          Fold idle time
        </label>
      }
    >
      {data.steps.length === 0 ? (
        <Empty icon="programs" title="No step yet">
          <p>Steps appear here as they arrive.</p>
        </Empty>
      ) : (
        <>
          <SpanCanvas
            label="Timeline of the program"
            lanes={timeline.lanes}
            scale={scale}
            rowHeight={ROW_HEIGHT}
            maxHeight={420}
            selected={selected}
            onSelect={(span) => {
              if (span?.step !== undefined) onSelect(span.step);
              if (span?.program !== undefined)
                void navigate({
                  to: "/programs/$program",
                  params: { program: span.program },
                  search: {},
                });
            }}
          />
          <Legend timeline={data.timeline} />
          <NotShown data={data} />
        </>
      )}
    </Panel>
  );
}

/** Parents whose subagents that found no place are named. */
const PARENTS_MAX = 4;

/** Subagents that are in no lane, with where they are listed. */
function NotShown({ data: { view, timeline, family } }: { data: ProgramData }) {
  const { hidden } = timeline;
  const unasked = family?.unasked ?? 0;
  if (hidden.length === 0 && unasked === 0) return null;
  return (
    <p className="field-note">
      {hidden.slice(0, PARENTS_MAX).map(({ parent, count: found, more }) => (
        <span key={parent} className="not-shown">
          <Link to="/programs" search={{ parent }}>
            {found > 0 ? `+${count(found)} more` : "more"}
            {found > 0 && more ? ", and others," : ""} started by{" "}
            {parent === view.program_id ? "it" : <Text value={parent} max={60} />}
          </Link>
        </span>
      ))}
      {hidden.length > PARENTS_MAX
        ? `and some of ${plural(hidden.length - PARENTS_MAX, "other program")}. `
        : null}
      {unasked > 0
        ? `What ${plural(unasked, "further subagent")} started is on the pages of these.`
        : null}
    </p>
  );
}

const CACHE_LABELS: Partial<Record<State, string>> = { shared: "On a worker" };

function Legend({ timeline }: { timeline: ProgramData["timeline"] }) {
  const states = new Set<State>();
  for (const lane of timeline.lanes) for (const span of lane.spans) states.add(span.state);
  return (
    <div className="legend">
      {[...states].map((state) => (
        <span key={state} className="legend-item" title={STATES[state].meaning}>
          <span className={`swatch state-${state}`} aria-hidden="true" />
          {CACHE_LABELS[state] ?? STATES[state].label}
        </span>
      ))}
      <span className="legend-time dim">
        Ctrl + wheel zooms, drag moves, click or Enter opens a step
      </span>
    </div>
  );
}
