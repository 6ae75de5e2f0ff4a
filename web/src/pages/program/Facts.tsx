// A program at a glance: how it is now, and where its time went.
import { Link } from "@tanstack/react-router";
import { count, percent, plural, short } from "../../format/number";
import { duration } from "../../format/time";
import { FAMILY } from "../../model/family";
import { cachedOf } from "../../model/series";
import { STATES, type State } from "../../model/states";
import { Meter } from "../../ui/Meter";
import { Stat } from "../../ui/Panel";
import { Text } from "../../ui/Text";
import { Since, Time } from "../../ui/Time";
import { ProgramState, Reward } from "../programs/columns";
import type { ProgramData } from "./useProgramData";

const SPENT: State[] = ["queued", "prefill", "decode", "tool", "failed"];

export function Facts({ data }: { data: ProgramData }) {
  const { view, steps, names } = data;
  const { cached, prompt } = cachedOf(steps);
  const output = steps.reduce((sum, step) => sum + step.output_tokens, 0);
  const pauses = data.decisions.filter((one) => ["pause", "offload"].includes(one.kind)).length;
  const spent = timeSpent(data);
  const total = Object.values(spent).reduce((sum, value) => sum + value, 0);
  return (
    <>
      <dl className="stats">
        <Stat
          label="State"
          value={<ProgramState program={view} />}
          note={
            view.worker ? (
              <Link to="/workers" search={{ worker: names.idOf(view.worker) ?? undefined }}>
                {names.nameOf(view.worker)}
              </Link>
            ) : view.ended ? (
              <Text value={view.ended} max={60} />
            ) : (
              "on no worker"
            )
          }
        />
        <Stat
          label={view.ended ? "Lasted" : "Running for"}
          value={
            view.ended ? (
              duration(view.updated_at_us - view.created_at_us)
            ) : (
              <Since us={view.created_at_us} />
            )
          }
          note={
            <>
              begun <Time us={view.created_at_us} exact />
            </>
          }
        />
        <Stat label="Steps" value={count(view.steps)} note={`${count(output)} tokens generated`} />
        <Stat label="Context" value={short(view.context_tokens)} unit="tokens" />
        <Stat label="Reward" value={<Reward value={view.reward} />} />
        <Stat
          label="Prompt found in cache"
          value={prompt > 0 ? percent(cached / prompt) : "–"}
          note={
            prompt > 0 ? `${short(cached)} of ${short(prompt)} tokens` : "the engine does not say"
          }
        />
        <Stat
          label="Paused or offloaded"
          value={count(pauses)}
          unit={pauses === 1 ? "time" : "times"}
        />
      </dl>
      <div className="spent">
        <Meter
          label="Where the time went"
          total={total}
          parts={SPENT.map((state) => ({
            label: STATES[state].label,
            value: spent[state] ?? 0,
            state,
          }))}
        />
        <div className="legend">
          {SPENT.filter((state) => (spent[state] ?? 0) > 0).map((state) => (
            <span key={state} className="legend-item">
              <span className={`swatch state-${state}`} aria-hidden="true" />
              {STATES[state].label}
              <strong>{duration(spent[state])}</strong>
              <span className="dim">{percent((spent[state] ?? 0) / total)}</span>
            </span>
          ))}
          <Relatives data={data} />
        </div>
      </div>
    </>
  );
}

/** What started it, and how many it started. */
function Relatives({ data: { view, family } }: { data: ProgramData }) {
  const started = family?.below[0]?.length ?? 0;
  return (
    <span className="legend-time">
      {view.parent ? (
        <>
          started by{" "}
          <Link to="/programs/$program" params={{ program: view.parent }}>
            <Text value={view.parent} max={80} />
          </Link>
        </>
      ) : null}
      {view.parent && started > 0 ? ", " : null}
      {started > 0 ? (
        <Link to="/programs" search={{ parent: view.program_id }}>
          started {family?.cut.includes(view.program_id) ? "over " : ""}
          {plural(started, "program")}
        </Link>
      ) : null}
    </span>
  );
}

function timeSpent(data: ProgramData): Partial<Record<State, number>> {
  const spent: Partial<Record<State, number>> = {};
  for (const lane of data.timeline.lanes) {
    if (lane.id === "cache" || lane.id.startsWith(FAMILY)) continue;
    for (const span of lane.spans)
      spent[span.state] = (spent[span.state] ?? 0) + span.to - span.from;
  }
  return spent;
}
