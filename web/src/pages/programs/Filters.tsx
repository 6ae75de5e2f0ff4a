// What the list of programs is narrowed to; all of it is in the URL.
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { memory, workers } from "../../api/queries";
import { visibleText } from "../../format/text";
import { Choice } from "../../ui/Choice";
import { Icon } from "../../ui/Icon";

export interface ProgramSearch {
  job?: string;
  status?: string;
  worker?: string;
  parent?: string;
  sort?: string;
  find?: string;
}

const STATUSES = ["queued", "active", "paused", "finished", "aborted"];

export function Filters({ search }: { search: ProgramSearch }) {
  const navigate = useNavigate({ from: "/programs" });
  const { data: workerData } = useQuery(workers);
  const { data: memoryData } = useQuery(memory);
  const set = (changes: ProgramSearch) =>
    void navigate({
      search: (old) =>
        Object.fromEntries(
          Object.entries({ ...old, ...changes }).filter(([, value]) => value !== ""),
        ),
      replace: true,
    });
  const jobs = new Set((memoryData?.jobs ?? []).map((one) => one.job));
  if (search.job) jobs.add(search.job);
  return (
    <div className="toolbar" role="search">
      <div className="grow">
        <FindBox value={search.find ?? ""} onChange={(find) => set({ find })} />
      </div>
      <Choice
        label="Job"
        all="All jobs"
        value={search.job ?? ""}
        options={[...jobs].map((job) => [job, visibleText(job, 60)])}
        onChange={(job) => set({ job })}
      />
      <Choice
        label="Status"
        all="Any status"
        value={search.status ?? ""}
        options={STATUSES.map((status) => [status, status])}
        onChange={(status) => set({ status })}
      />
      <Choice
        label="Worker"
        all="Any worker"
        value={search.worker ?? ""}
        options={(workerData?.workers ?? []).map((one) => [one.id, `worker ${one.id}`])}
        onChange={(worker) => set({ worker })}
      />
      {search.parent ? (
        <button type="button" className="button" onClick={() => set({ parent: "" })}>
          Started by {visibleText(search.parent, 40)}
          <Icon name="close" />
        </button>
      ) : null}
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
