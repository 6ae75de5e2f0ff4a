// The versions of engines over time: a lane for each, with the phases of updates.
import { useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { useWorkerNames } from "../../api/useWorkerNames";
import { duration } from "../../format/time";
import { FoldedScale } from "../../model/scale";
import { STATES, type State } from "../../model/states";
import type { Lane } from "../../model/timeline";
import { lanesOf, legendOf, UPDATES_SHOWN, type UpdateRow, versionText } from "../../model/weights";
import type { WeightsHistory } from "../../model/weightsReplay";
import { Choice } from "../../ui/Choice";
import { Panel } from "../../ui/Panel";
import { SpanCanvas } from "../../ui/spans/SpanCanvas";

const ROW_HEIGHT = 30;
const MAX_HEIGHT = 420;
/** Updates that can be chosen by name. */
const CHOICES_MAX = 50;

interface Props {
  history: WeightsHistory;
  /** The updates that are shown. */
  rows: UpdateRow[];
  all: UpdateRow[];
  now: number;
  chosen: string;
  onChoose: (key: string | undefined) => void;
}

export function WeightsLanes({ history, rows, all, now, chosen, onChoose }: Props) {
  const navigate = useNavigate();
  const { nameOf } = useWorkerNames();
  const shown = useMemo(() => lanesOf(history, rows, now, nameOf), [history, rows, now, nameOf]);
  const scale = useMemo(
    () => (shown ? new FoldedScale(shown.from, shown.to, shown.busy) : null),
    [shown],
  );
  if (!shown || !scale) return null;
  const folded = scale.folds.reduce((sum, fold) => sum + fold.to - fold.from, 0);
  const known = all.filter((row) => row.began !== null).slice(0, CHOICES_MAX);
  return (
    <Panel
      title="Versions over time"
      note={folded > 0 ? `${duration(folded)} without a change folded` : undefined}
      actions={
        <Choice
          label="Updates in the lanes"
          all={all.length > UPDATES_SHOWN ? `The latest ${UPDATES_SHOWN} updates` : "All updates"}
          value={chosen}
          options={[
            ...(all.length > UPDATES_SHOWN ? [["all", "All on record"] as [string, string]] : []),
            ...known.map((row): [string, string] => [row.key, `To ${versionText(row.weights)}`]),
          ]}
          onChange={(key) => onChoose(key || undefined)}
        />
      }
    >
      <SpanCanvas
        key={chosen}
        label="Versions of engines over time"
        lanes={shown.lanes}
        scale={scale}
        rowHeight={ROW_HEIGHT}
        maxHeight={MAX_HEIGHT}
        onSelect={(_, lane) => void navigate({ to: "/workers", search: { worker: lane.id } })}
      />
      <Legend lanes={shown.lanes} />
    </Panel>
  );
}

const PHASES: State[] = [
  "preparing",
  "pausing",
  "idle",
  "loading",
  "verifying",
  "clearing",
  "awaiting",
  "resuming",
  "fenced",
];

/** An update has one of two phases, by who makes it. */
function phasesOf(lanes: Lane[]): State[] {
  const has = (state: State) => lanes.some(({ spans }) => spans.some((one) => one.state === state));
  const isDriven = has("idle");
  return PHASES.filter((state) =>
    state === "preparing" ? has(state) || !isDriven : state !== "idle" || isDriven,
  );
}

function Legend({ lanes }: { lanes: Lane[] }) {
  return (
    <div className="legend">
      {legendOf(lanes).map(({ token, label }) => (
        <span key={label} className="legend-item">
          <span className={`swatch state-${token}`} aria-hidden="true" />
          {label}
        </span>
      ))}
      {phasesOf(lanes).map((state) => (
        <span key={state} className="legend-item" title={STATES[state].meaning}>
          <span className={`swatch state-${state}`} aria-hidden="true" />
          {STATES[state].label}
        </span>
      ))}
      <span className="legend-time dim">
        Ctrl + wheel zooms, drag moves, click or Enter opens an engine
      </span>
    </div>
  );
}
