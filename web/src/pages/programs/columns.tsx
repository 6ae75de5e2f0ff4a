// The columns of the list of programs.
import { Link } from "@tanstack/react-router";
import type { ProgramView } from "../../api/types";
import type { WorkerNames } from "../../api/useWorkerNames";
import { count, short } from "../../format/number";
import { duration } from "../../format/time";
import { journalNow } from "../../live/clock";
import { stateOfProgram } from "../../model/states";
import type { Column } from "../../ui/DataTable";
import { StateMark } from "../../ui/State";
import { Text } from "../../ui/Text";
import { Since, Time } from "../../ui/Time";

/** A program's status in one word. */
export function ProgramState({ program }: { program: ProgramView }) {
  const state = stateOfProgram(program, journalNow());
  const label = { decode: "Running", failed: "Aborted" }[state as string];
  return <StateMark state={state} label={program.ended === "expired" ? "Expired" : label} />;
}

/** How well a program did, where its client has said so. */
export function Reward({ value }: { value: number | null | undefined }) {
  return value === null || value === undefined ? (
    <span className="dim">–</span>
  ) : (
    <span title={String(value)}>{short(value)}</span>
  );
}

export function columnsFor({ nameOf }: WorkerNames): Column<ProgramView>[] {
  return [
    {
      id: "program",
      header: "Program",
      width: "minmax(140px, 3fr)",
      cell: (row) => (
        <Link to="/programs/$program" params={{ program: row.program_id }} tabIndex={-1}>
          <Text value={row.program_id} />
        </Link>
      ),
    },
    { id: "status", header: "State", width: "92px", cell: (row) => <ProgramState program={row} /> },
    {
      id: "job",
      header: "Job",
      width: "minmax(80px, 1fr)",
      wideOnly: true,
      cell: (row) => <Text value={row.job ?? "default"} />,
    },
    {
      id: "worker",
      header: "Worker",
      width: "84px",
      wideOnly: true,
      cell: (row) => (row.worker ? nameOf(row.worker) : <span className="dim">–</span>),
    },
    {
      id: "steps",
      header: "Steps",
      width: "56px",
      numeric: true,
      sort: "steps",
      cell: (row) => count(row.steps),
    },
    {
      id: "context",
      header: "Context",
      width: "76px",
      numeric: true,
      wideOnly: true,
      sort: "context_tokens",
      cell: (row) => (
        <span title={`${count(row.context_tokens)} tokens`}>{short(row.context_tokens)}</span>
      ),
    },
    {
      id: "tokens",
      header: "Tokens",
      width: "76px",
      numeric: true,
      wideOnly: true,
      sort: "tokens_total",
      cell: (row) => (
        <span title={`${count(row.tokens_total)} tokens`}>{short(row.tokens_total)}</span>
      ),
    },
    {
      id: "reward",
      header: "Reward",
      width: "76px",
      numeric: true,
      wideOnly: true,
      sort: "reward",
      cell: (row) => <Reward value={row.reward} />,
    },
    {
      id: "lasted",
      header: "Lasted",
      width: "92px",
      numeric: true,
      wideOnly: true,
      sort: "lasted",
      cell: (row) =>
        row.ended ? (
          duration(row.updated_at_us - row.created_at_us)
        ) : (
          <Since us={row.created_at_us} />
        ),
    },
    {
      id: "created",
      header: "Begun",
      width: "92px",
      numeric: true,
      wideOnly: true,
      sort: "created_at_us",
      cell: (row) => <Time us={row.created_at_us} />,
    },
    {
      id: "updated",
      header: "Changed",
      width: "92px",
      numeric: true,
      wideOnly: true,
      sort: "updated_at_us",
      cell: (row) => <Time us={row.updated_at_us} />,
    },
  ];
}
