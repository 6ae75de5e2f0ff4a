// What the list of programs is narrowed to; all of it is in the URL.
import { useQuery } from "@tanstack/react-query";
import { useEffect, useRef, useState } from "react";
import { trainingJobs } from "../../api/training";
import { visibleText } from "../../format/text";
import { Choice } from "../../ui/Choice";
import { JobChoice, useSearchFilters, WorkerChoice } from "../../ui/filters";
import { Icon } from "../../ui/Icon";

export interface ProgramSearch {
  job?: string;
  status?: string;
  worker?: string;
  parent?: string;
  sort?: string;
  find?: string;
  /** `group` lists the groups of the job's training run. */
  by?: string;
  /** The group whose members are listed. */
  group?: string;
}

const STATUSES = ["queued", "active", "paused", "finished", "aborted"];

/** Programs one by one, or by the groups of a training run; nothing without a training job. */
function ByGroup({ search }: { search: ProgramSearch }) {
  const set = useSearchFilters("/programs");
  const { data } = useQuery(trainingJobs);
  const jobs = data?.jobs.map((one) => one.job) ?? [];
  const job = search.job ?? jobs[0];
  const isOn = search.by === "group";
  if (!isOn && (job === undefined || !jobs.includes(job))) return null;
  return (
    <button
      type="button"
      className="button"
      aria-pressed={isOn}
      onClick={() => set(isOn ? { by: "", group: "" } : { by: "group", job })}
    >
      By group
    </button>
  );
}

/** Of the groups of a training run: which run. */
export function GroupFilters({ search }: { search: ProgramSearch }) {
  const set = useSearchFilters("/programs");
  const { data } = useQuery(trainingJobs);
  const jobs = new Set(data?.jobs.map((one) => one.job));
  if (search.job) jobs.add(search.job);
  return (
    <div className="toolbar" role="search">
      <Choice
        label="Training job"
        all="No job"
        value={search.job ?? ""}
        options={[...jobs].map((job) => [job, visibleText(job, 60)])}
        onChange={(job) => set({ job, group: "" })}
      />
      <ByGroup search={search} />
    </div>
  );
}

export function Filters({ search }: { search: ProgramSearch }) {
  const set = useSearchFilters("/programs");
  return (
    <div className="toolbar" role="search">
      <div className="grow">
        <FindBox value={search.find ?? ""} onChange={(find) => set({ find })} />
      </div>
      <JobChoice value={search.job} set={set} />
      <Choice
        label="Status"
        all="Any status"
        value={search.status ?? ""}
        options={STATUSES.map((status) => [status, status])}
        onChange={(status) => set({ status })}
      />
      <WorkerChoice value={search.worker} set={set} />
      {search.parent ? (
        <button type="button" className="button" onClick={() => set({ parent: "" })}>
          Started by {visibleText(search.parent, 40)}
          <Icon name="close" />
        </button>
      ) : null}
      <ByGroup search={search} />
    </div>
  );
}

const TYPING_MS = 200;

function FindBox({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const [text, setText] = useState(value);
  const latest = useRef(onChange);
  latest.current = onChange;
  useEffect(() => setText(value), [value]);
  useEffect(() => {
    if (text === value) return;
    const timer = setTimeout(() => latest.current(text), TYPING_MS);
    return () => clearTimeout(timer);
  }, [text, value]);
  return (
    <input
      className="input"
      type="search"
      aria-label="Find in the names of programs"
      placeholder="Find in names"
      value={text}
      onChange={(event) => setText(event.target.value)}
    />
  );
}
