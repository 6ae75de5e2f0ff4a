// What the list of steps is narrowed to; all of it is in the URL.
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { memory, workers } from "../../api/queries";
import { visibleText } from "../../format/text";
import { Choice } from "../../ui/Choice";

export interface StepSearch {
  job?: string;
  worker?: string;
  outcome?: string;
  sort?: string;
}

const OUTCOMES = ["stop", "length", "failed", "cancelled", "interrupted", "refused"];

export function Filters({ search }: { search: StepSearch }) {
  const navigate = useNavigate({ from: "/steps" });
  const { data: workerData } = useQuery(workers);
  const { data: memoryData } = useQuery(memory);
  const set = (changes: StepSearch) =>
    void navigate({
      search: (old) =>
        Object.fromEntries(
          Object.entries({ ...old, ...changes }).filter(([, value]) => value !== ""),
        ),
      replace: true,
    });
  const jobs = new Set((memoryData?.jobs ?? []).map((one) => one.job));
  if (search.job) jobs.add(search.job);
  const outcomes = new Set(OUTCOMES);
  if (search.outcome) outcomes.add(search.outcome);
  return (
    <div className="toolbar" role="search">
      <Choice
        label="Outcome"
        all="Any outcome"
        value={search.outcome ?? ""}
        options={[...outcomes].map((outcome) => [outcome, visibleText(outcome, 40)])}
        onChange={(outcome) => set({ outcome })}
      />
      <Choice
        label="Job"
        all="All jobs"
        value={search.job ?? ""}
        options={[...jobs].map((job) => [job, visibleText(job, 60)])}
        onChange={(job) => set({ job })}
      />
      <Choice
        label="Worker"
        all="Any worker"
        value={search.worker ?? ""}
        options={(workerData?.workers ?? []).map((one) => [one.id, `worker ${one.id}`])}
        onChange={(worker) => set({ worker })}
      />
    </div>
  );
}
