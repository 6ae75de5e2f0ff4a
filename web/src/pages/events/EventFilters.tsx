// What the list of events is narrowed to; all of it is in the URL.
import { useNavigate } from "@tanstack/react-router";
import { type FormEvent, useEffect, useState } from "react";
import { Choice } from "../../ui/Choice";

export interface EventSearch {
  job?: string | undefined;
  program?: string | undefined;
  kind?: string | undefined;
  seq?: string | undefined;
  timers?: string | undefined;
}

const KINDS = [
  "action_finished",
  "action_started",
  "configured",
  "copy_lost",
  "daemon_restarted",
  "gateway_lost",
  "load_failed",
  "migration_failed",
  "offload_failed",
  "policy_answered",
  "policy_bound",
  "policy_failed",
  "policy_rolled_back",
  "policy_unbound",
  "program_loaded",
  "program_migrated",
  "program_offloaded",
  "program_released",
  "program_rewarded",
  "prompt_counted",
  "record_refused",
  "step_adopted",
  "step_arrived",
  "step_cancelled",
  "step_failed",
  "step_finished",
  "step_first_token",
  "step_interrupted",
  "step_progressed",
  "step_runs_on",
  "timer_fired",
  "worker_added",
  "worker_capacity_read",
  "worker_lost",
  "worker_model_read",
  "worker_recovered",
  "worker_removed",
  "worker_speed_read",
  "worker_use_read",
];

export function EventFilters({ search }: { search: EventSearch }) {
  const navigate = useNavigate({ from: "/events" });
  const [job, setJob] = useState(search.job ?? "");
  const [program, setProgram] = useState(search.program ?? "");
  useEffect(() => setJob(search.job ?? ""), [search.job]);
  useEffect(() => setProgram(search.program ?? ""), [search.program]);
  const set = (changes: EventSearch) =>
    void navigate({ search: (old) => ({ ...old, ...changes, seq: undefined }), replace: true });
  const submit = (event: FormEvent) => {
    event.preventDefault();
    set({ job: job.trim() || undefined, program: program.trim() || undefined });
  };
  return (
    <form className="toolbar" role="search" onSubmit={submit}>
      <Choice
        label="Kind"
        all="All kinds"
        value={search.kind ?? ""}
        options={KINDS.map((kind) => [kind, kind])}
        onChange={(kind) => set({ kind: kind || undefined })}
      />
      <input
        className="input"
        type="search"
        aria-label="Job"
        placeholder="Job"
        value={job}
        onChange={(event) => setJob(event.target.value)}
      />
      <div className="grow">
        <input
          className="input"
          type="search"
          aria-label="Program, by its whole name"
          placeholder="Program, by its whole name"
          value={program}
          onChange={(event) => setProgram(event.target.value)}
        />
      </div>
      <button type="submit" className="button">
        Filter
      </button>
      <label className="check">
        <input
          type="checkbox"
          checked={search.timers === "shown"}
          onChange={(event) => set({ timers: event.target.checked ? "shown" : undefined })}
        />
        Timers
      </label>
    </form>
  );
}
