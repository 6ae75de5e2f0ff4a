// All programs of a job side by side, with the one that ends last marked.
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useMemo, useState } from "react";
import { useWorkerNames } from "../../api/useWorkerNames";
import { plural } from "../../format/number";
import { duration } from "../../format/time";
import { lastToEnd } from "../../model/critical";
import { rewardSteps, rewardToken } from "../../model/rewards";
import { FoldedScale } from "../../model/scale";
import { STATES, type State } from "../../model/states";
import type { Lane, Span } from "../../model/timeline";
import { Choice } from "../../ui/Choice";
import { JobChoice, useSearchFilters } from "../../ui/filters";
import { Empty, Failure, Loading, PageHead, Panel } from "../../ui/Panel";
import { SpanCanvas } from "../../ui/spans/SpanCanvas";
import { stateColor } from "../../ui/spans/usePainting";
import { Text } from "../../ui/Text";
import { colorOf } from "../../ui/theme";
import { Minimap } from "./Minimap";
import { type ProgramLane, useLanes } from "./useLanes";

const ROW_HEIGHT = 16;
const HEIGHT = 560;
/** With more lanes than this, an overview with a brush is beside them. */
const OVERVIEW_FROM = 64;
const LIMITS = [32, 64, 128, 256];
const DEFAULT_LIMIT = 64;
const WORKER_COLORS = [
  "decode",
  "queued",
  "tool",
  "paused",
  "offloaded",
  "recompute",
  "prefill",
  "migrating",
];
/** Colours of weights by how many versions came after them; the last is for those that are unknown. */
const AGES: { token: State; label: string }[] = [
  { token: "tool", label: "Newest weights" },
  { token: "prefill", label: "1 version behind" },
  { token: "queued", label: "2 behind" },
  { token: "recompute", label: "3 or more behind" },
  { token: "unused", label: "No version known" },
];
const SHOWN: State[] = ["queued", "prefill", "decode", "tool", "failed"];
type Painter = (span: Span, lane: Lane) => string;
interface Legend {
  key?: string;
  token: string;
  label: string;
}
const BY_STATE: Legend[] = SHOWN.map((state) => ({ token: state, label: STATES[state].label }));
const NO_REWARD: Legend = { token: "unused", label: "No reward known" };

export function Lanes() {
  const { job, color, live, limit: wanted } = useSearch({ from: "/lanes" });
  const set = useSearchFilters("/lanes");
  const limit = LIMITS.find((one) => String(one) === wanted) ?? DEFAULT_LIMIT;
  const lanes = useLanes(job, limit, live !== "off");
  return (
    <div className="page">
      <PageHead title="Swim lanes" note="One lane for each program, begun first on top.">
        <JobChoice value={job} set={set} />
        <Choice
          label="Colour"
          all="Colour by state"
          value={color ?? ""}
          options={[
            ["worker", "Colour by worker"],
            ["staleness", "Colour by staleness"],
            ["reward", "Colour by reward"],
          ]}
          onChange={(next) => set({ color: next })}
        />
        <select
          className="input narrow-input"
          aria-label="Number of programs"
          value={limit}
          onChange={(event) => set({ limit: event.target.value })}
        >
          {LIMITS.map((one) => (
            <option key={one} value={one}>
              newest {one}
            </option>
          ))}
        </select>
        <label className="check">
          <input
            type="checkbox"
            checked={live !== "off"}
            onChange={(event) => set({ live: event.target.checked ? undefined : "off" })}
          />
          Live
        </label>
      </PageHead>
      {lanes.isPending ? (
        <Loading rows={10} />
      ) : lanes.error && !lanes.data ? (
        <Failure error={lanes.error} retry={() => void lanes.refetch()} />
      ) : !lanes.data || lanes.data.lanes.length === 0 ? (
        <Empty icon="lanes" title="No program to show">
          <p>
            Programs name their job in the header <code>X-Treadle-Job</code>. Each gets a lane with
            its first step.
          </p>
        </Empty>
      ) : (
        <>
          {lanes.data.more ? <More job={job} shown={limit} /> : null}
          <Chart lanes={lanes.data.lanes} color={color} />
        </>
      )}
    </div>
  );
}

function Chart({ lanes, color }: { lanes: ProgramLane[]; color: string | undefined }) {
  const navigate = useNavigate();
  const names = useWorkerNames();
  const [top, setTop] = useState(0);
  const scale = useMemo(() => {
    const from = Math.min(...lanes.map((lane) => lane.begun));
    const to = Math.max(...lanes.map((lane) => lane.ended));
    return new FoldedScale(from, Math.max(to, from + 1), null);
  }, [lanes]);
  const critical = useMemo(() => lastToEnd(lanes), [lanes]);
  const workers = useMemo(() => workersOf(lanes, names.nameOf), [lanes, names]);
  const workerColor = useCallback(
    (span: Span, lane: Lane) => {
      const url = span.step === undefined ? "" : (lane as ProgramLane).workers.get(span.step);
      const at = span.state === "queued" || !url ? -1 : workers.findIndex((one) => one.url === url);
      return at < 0 ? colorOf("surface-3") : colorOf(`state-${workerToken(at)}`);
    },
    [workers],
  );
  const rewards = useMemo(
    () => rewardSteps(lanes.flatMap((lane) => lane.program.reward ?? [])),
    [lanes],
  );
  const rewardColor = useCallback(
    (span: Span, lane: Lane) => {
      const token = rewardToken(rewards, (lane as ProgramLane).program.reward);
      return colorOf(span.state === "queued" ? "surface-3" : `state-${token}`);
    },
    [rewards],
  );
  const modes: Record<string, { colorFor: Painter; legend: Legend[] }> = {
    worker: {
      colorFor: workerColor,
      legend: workers.map(({ url, name }, at) => ({
        key: url,
        token: workerToken(at),
        label: name,
      })),
    },
    staleness: { colorFor: ageColor, legend: AGES },
    reward: { colorFor: rewardColor, legend: [...rewards, NO_REWARD] },
  };
  const { colorFor, legend } = modes[color ?? ""] ?? { colorFor: stateColor, legend: BY_STATE };
  return (
    <Panel
      title={plural(lanes.length, "program")}
      note={critical ? <Critical lane={critical} /> : undefined}
    >
      <div className={lanes.length > OVERVIEW_FROM ? "lanes with-map" : "lanes"}>
        <SpanCanvas
          label="Swim lanes"
          lanes={lanes}
          scale={scale}
          rowHeight={ROW_HEIGHT}
          maxHeight={HEIGHT}
          scrollTop={top}
          onScroll={setTop}
          colorFor={colorFor}
          marked={critical?.id ?? null}
          onSelect={(span, lane) =>
            void navigate({
              to: "/programs/$program",
              params: { program: lane.id },
              search: span?.step === undefined ? {} : { step: String(span.step), tab: "steps" },
            })
          }
        />
        {lanes.length > OVERVIEW_FROM ? (
          <Minimap
            lanes={lanes}
            scale={scale}
            height={HEIGHT}
            rowHeight={ROW_HEIGHT}
            top={top}
            onTop={setTop}
            colorFor={colorFor}
          />
        ) : null}
      </div>
      <div className="legend">
        {legend.map(({ key, token, label }) => (
          <LegendItem key={key ?? token} token={token} label={label} />
        ))}
        <span className="legend-time dim">
          the marked lane ends last; click a lane to open its program
        </span>
      </div>
    </Panel>
  );
}

/** Which program of those shown ends last, and when. */
function Critical({ lane }: { lane: ProgramLane }) {
  const { program, end } = lane;
  const [what, when] = program.ended
    ? ["ended last", `after ${duration(lane.ended - lane.begun)}`]
    : end === null
      ? ["at work for longest", duration(lane.ended - lane.begun)]
      : ["expected to end last", `in ${duration(end - lane.ended)}`];
  return (
    <>
      {what}:{" "}
      <Link to="/programs/$program" params={{ program: lane.id }}>
        <Text value={lane.id} max={80} />
      </Link>
      , {when}
    </>
  );
}

function More({ job, shown }: { job: string | undefined; shown: number }) {
  return (
    <p className="field-note">
      These are the newest {shown}; the one that ends last is marked among these only.{" "}
      <Link to="/programs" search={job ? { job } : {}}>
        All programs
      </Link>
    </p>
  );
}

function LegendItem({ token, label }: { token: string; label: string }) {
  return (
    <span className="legend-item">
      <span className={`swatch state-${token}`} aria-hidden="true" />
      {label}
    </span>
  );
}

/** The colour of a span by the age of the weights that its step ran under. */
function ageColor(span: Span, lane: Lane): string {
  const age = span.step === undefined ? null : (lane as ProgramLane).staleness.get(span.step);
  if (span.state === "queued" || age === null || age === undefined) return colorOf("state-unused");
  const token = AGES[Math.min(age, AGES.length - 2)]?.token;
  return colorOf(`state-${token ?? "unused"}`);
}

function workerToken(at: number): string {
  return WORKER_COLORS[at % WORKER_COLORS.length] ?? "decode";
}

function workersOf(lanes: ProgramLane[], nameOf: (worker: string) => string) {
  const urls = new Set(lanes.flatMap((lane) => [...lane.workers.values()].filter(Boolean)));
  return [...urls]
    .map((url) => ({ url, name: nameOf(url) }))
    .sort((a, b) => a.name.localeCompare(b.name, "en", { numeric: true }));
}
