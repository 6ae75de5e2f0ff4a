// What the list of programs is narrowed to; all of it is in the URL.
import { useEffect, useRef, useState } from "react";
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
}

const STATUSES = ["queued", "active", "paused", "finished", "aborted"];

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
