// The columns of the list of steps.
import { Link } from "@tanstack/react-router";
import type { StepView } from "../../api/types";
import type { WorkerNames } from "../../api/useWorkerNames";
import { count } from "../../format/number";
import { duration } from "../../format/time";
import type { Column } from "../../ui/DataTable";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";
import { Outcome } from "../program/Outcome";

const NONE = <span className="dim">–</span>;

export function columnsFor({ nameOf }: WorkerNames): Column<StepView>[] {
  return [
    {
      id: "ended",
      header: "Ended",
      width: "92px",
      wideOnly: true,
      sort: "finished_at_us",
      cell: (row) => (row.finished_at_us ? <Time us={row.finished_at_us} /> : NONE),
    },
    {
      id: "program",
      header: "Program",
      width: "minmax(100px, 2fr)",
      cell: (row) => (
        <Link
          to="/programs/$program"
          params={{ program: row.program_id }}
          search={{ tab: "steps", step: String(row.step) }}
          tabIndex={-1}
        >
          <Text value={row.program_id} max={120} />
        </Link>
      ),
    },
    {
      id: "job",
      header: "Job",
      width: "minmax(70px, 1fr)",
      wideOnly: true,
      cell: (row) => <Text value={row.job ?? "default"} max={60} />,
    },
    {
      id: "worker",
      header: "Worker",
      width: "84px",
      wideOnly: true,
      cell: (row) => (row.worker ? nameOf(row.worker) : NONE),
    },
    { id: "outcome", header: "Outcome", width: "92px", cell: (row) => <Outcome step={row} /> },
    {
      id: "queued",
      header: "Queued",
      width: "76px",
      numeric: true,
      wideOnly: true,
      cell: (row) => duration(row.waited_us),
    },
    {
      id: "took",
      header: "Took",
      width: "76px",
      numeric: true,
      sort: "took_us",
      cell: (row) => (row.finished_at_us ? duration(row.finished_at_us - row.arrived_at_us) : NONE),
    },
    {
      id: "prompt",
      header: "Prompt",
      width: "76px",
      numeric: true,
      wideOnly: true,
      cell: (row) => count(row.prompt_tokens),
    },
    {
      id: "output",
      header: "Output",
      width: "76px",
      numeric: true,
      wideOnly: true,
      cell: (row) => count(row.output_tokens),
    },
    {
      id: "cause",
      header: "Cause",
      width: "minmax(100px, 2fr)",
      wideOnly: true,
      cell: (row) => (row.cause ? <Text value={row.cause} max={200} /> : NONE),
    },
  ];
}
