// What the list of steps is narrowed to; all of it is in the URL.
import { visibleText } from "../../format/text";
import { Choice } from "../../ui/Choice";
import { JobChoice, useSearchFilters, WorkerChoice } from "../../ui/filters";

export interface StepSearch {
  job?: string;
  worker?: string;
  outcome?: string;
  sort?: string;
}

const OUTCOMES = ["stop", "length", "failed", "cancelled", "interrupted", "refused"];

export function Filters({ search }: { search: StepSearch }) {
  const set = useSearchFilters("/steps");
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
      <JobChoice value={search.job} set={set} />
      <WorkerChoice value={search.worker} set={set} />
    </div>
  );
}
