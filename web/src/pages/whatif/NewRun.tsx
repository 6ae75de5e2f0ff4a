// Asks for a run: which sets of policies, over which part of the journal.
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { ApiError, call } from "../../api/client";
import { memory, plugins, queryClient } from "../../api/queries";
import { visibleText } from "../../format/text";
import { journalNow } from "../../live/clock";
import { Choice } from "../../ui/Choice";
import { Icon } from "../../ui/Icon";
import { Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";

const BUILT_IN = ["recorded", "treadle", "sticky", "least-load"];
const REPLAYED_WORLDS = ["eviction", "priority", "placement"];
const SETS_MAX = 8;
const WINDOWS: [string, string][] = [
  ["300", "last 5 minutes"],
  ["1800", "last 30 minutes"],
  ["7200", "last 2 hours"],
  ["28800", "last 8 hours"],
];

export function NewRun({ onStarted }: { onStarted: (run: string) => void }) {
  const [sets, setSets] = useState<string[]>(["recorded", "sticky"]);
  const [window, setWindow] = useState("1800");
  const [job, setJob] = useState("");
  const [seeds, setSeeds] = useState("3");
  const [error, setError] = useState<string | null>(null);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setError(null);
    const from_us = window === "" ? null : Math.round(journalNow() - Number(window) * 1e6);
    try {
      const run = await call("post", "/api/v1/what-if/runs", {
        body: {
          sets: sets as unknown as Record<string, never>[],
          seeds: Number(seeds),
          window: { from_us, job: job || null },
        },
      });
      await queryClient.invalidateQueries({ queryKey: ["whatIf"] });
      onStarted(run.run);
    } catch (cause) {
      setError(cause instanceof ApiError ? cause.message : String(cause));
    }
  };
  return (
    <Panel title="New run">
      <form className="form" onSubmit={(event) => void submit(event)}>
        <Sets sets={sets} onChange={setSets} />
        <div className="form-row">
          <div className="field">
            <span className="field-label">Window</span>
            <Choice
              label="Window"
              all="all that is kept"
              value={window}
              options={WINDOWS}
              onChange={setWindow}
            />
          </div>
          <label className="field">
            <span className="field-label">Seeds</span>
            <input
              className="input"
              type="number"
              min="1"
              max="32"
              value={seeds}
              onChange={(event) => setSeeds(event.target.value)}
            />
          </label>
        </div>
        <JobChoice value={job} onChange={setJob} />
        {error ? (
          <p className="field-error" role="alert">
            <Text value={error} max={1000} />
          </p>
        ) : null}
        <button type="submit" className="button primary" disabled={sets.length === 0}>
          <Icon name="play" />
          Run
        </button>
      </form>
    </Panel>
  );
}

function JobChoice({ value, onChange }: { value: string; onChange: (job: string) => void }) {
  const { data } = useQuery(memory);
  const options = (data?.jobs ?? []).map((job): [string, string] => [
    job.job,
    visibleText(job.job, 60),
  ]);
  return (
    <div className="field">
      <span className="field-label">Job</span>
      <Choice label="Job" all="All jobs" value={value} options={options} onChange={onChange} />
    </div>
  );
}

function Sets({ sets, onChange }: { sets: string[]; onChange: (sets: string[]) => void }) {
  const { data } = useQuery(plugins);
  const names = new Set(
    (data?.plugins ?? [])
      .filter((plugin) => REPLAYED_WORLDS.includes(plugin.world))
      .map((plugin) => `${plugin.name}@${plugin.version}`),
  );
  const left = [...BUILT_IN, ...names].filter((name) => !sets.includes(name));
  return (
    <div className="field">
      <span className="field-label">Sets of policies, the baseline first</span>
      <ul className="sets">
        {sets.map((name, at) => (
          <li key={name}>
            <span className="clip">
              <Text value={name} max={80} />
            </span>
            {at === 0 ? <span className="dim">baseline</span> : null}
            <button
              type="button"
              className="button ghost icon-only"
              aria-label={`Take out ${visibleText(name, 60)}`}
              onClick={() => onChange(sets.filter((one) => one !== name))}
            >
              <Icon name="close" />
            </button>
          </li>
        ))}
      </ul>
      {sets.length < SETS_MAX ? (
        <Choice
          label="Add a set"
          all="Add a set…"
          value=""
          options={left.map((name) => [name, visibleText(name, 80)])}
          onChange={(name) => name && onChange([...sets, name])}
        />
      ) : null}
    </div>
  );
}
