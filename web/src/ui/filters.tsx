// Filters of lists; all of them are in the URL.
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { memory, workers } from "../api/queries";
import { visibleText } from "../format/text";
import { Choice } from "./Choice";

type Page = "/programs" | "/steps" | "/actions" | "/lanes";
type Changes = Record<string, string | undefined>;

/** Sets filters in the URL of a page; an empty one is removed. */
export function useSearchFilters(from: Page): (changes: Changes) => void {
  const navigate = useNavigate({ from });
  return (changes) =>
    void navigate({
      search: (old) => {
        const all = Object.entries<string | undefined>({ ...old, ...changes });
        return Object.fromEntries(all.filter(([, value]) => value !== "" && value !== undefined));
      },
      replace: true,
    });
}

interface ChoiceProps {
  value: string | undefined;
  set: (changes: Changes) => void;
}

/** Chooses one of the jobs that use memory, or the one that is in the URL already. */
export function JobChoice({ value, set }: ChoiceProps) {
  const { data } = useQuery(memory);
  const jobs = new Set((data?.jobs ?? []).map((one) => one.job));
  if (value) jobs.add(value);
  return (
    <Choice
      label="Job"
      all="All jobs"
      value={value ?? ""}
      options={[...jobs].map((job) => [job, visibleText(job, 60)])}
      onChange={(job) => set({ job })}
    />
  );
}

export function WorkerChoice({ value, set }: ChoiceProps) {
  const { data } = useQuery(workers);
  return (
    <Choice
      label="Worker"
      all="Any worker"
      value={value ?? ""}
      options={(data?.workers ?? []).map((one) => [one.id, `worker ${one.id}`])}
      onChange={(worker) => set({ worker })}
    />
  );
}
