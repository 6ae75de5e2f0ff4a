// The steps of a program as a table, and the details of the chosen one.
import { useMemo } from "react";
import { urlOf } from "../../api/client";
import type { StepView } from "../../api/types";
import { curlOf } from "../../format/curl";
import { count, percent, plural, short } from "../../format/number";
import { duration } from "../../format/time";
import { followed, stalenessOf } from "../../model/outlook";
import { type Column, DataTable } from "../../ui/DataTable";
import { copyText } from "../../ui/notices";
import { Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";
import { Messages } from "./Messages";
import { Outcome } from "./Outcome";
import type { ProgramData } from "./useProgramData";

interface Row extends StepView {
  number: number;
  limit: number | null;
  /** Tokens that followed it, so far. */
  followed: number | null;
  /** Versions of the weights since its own. */
  behind: number | null;
}

/** Columns that give way to the details of a step. */
const LEFT_OUT = ["prefill", "prompt", "left", "weights"];

export function Steps({
  data,
  selected,
  onSelect,
}: {
  data: ProgramData;
  selected: number | null;
  onSelect: (step: number) => void;
}) {
  const rows = useMemo(() => rowsOf(data), [data]);
  const narrow = selected !== null;
  const columns = useMemo(
    () => columnsOf(data, rows).filter((column) => !narrow || !LEFT_OUT.includes(column.id)),
    [data, rows, narrow],
  );
  const chosen = rows.find((row) => row.step === selected);
  return (
    <div className={chosen ? "grid-side steps" : "steps"}>
      <div className="steps-table">
        <DataTable
          label="Steps"
          rows={rows}
          columns={columns}
          keyOf={(row) => String(row.step)}
          selected={selected === null ? undefined : String(selected)}
          onOpen={(row) => onSelect(row.step)}
        />
      </div>
      {chosen ? <StepDetail program={data.view.program_id} row={chosen} data={data} /> : null}
    </div>
  );
}

function rowsOf({ view, steps, events }: ProgramData): Row[] {
  const behind = stalenessOf(steps);
  const limits = new Map<number, number>();
  for (const { kind, event } of events) {
    const body = event as { step?: number; output_tokens_max?: number | null };
    if (kind === "step_arrived" && body.step !== undefined && body.output_tokens_max)
      limits.set(body.step, body.output_tokens_max);
  }
  return steps.map((step, at) => ({
    ...step,
    number: at + 1,
    limit: limits.get(step.step) ?? null,
    followed: followed(step, view.output_tokens),
    behind: behind(step),
  }));
}

/** What was predicted to follow a step, and what did. */
function Left({ row, ended }: { row: Row; ended: boolean }) {
  if (!row.outcome) return "–";
  const so = row.followed === null ? "–" : `${short(row.followed)}${ended ? "" : " so far"}`;
  return `${row.predicted_tokens == null ? "–" : short(row.predicted_tokens)} / ${so}`;
}

/** Under which weights a step ran, and how old they are. */
function Weights({ row }: { row: Row }) {
  if (!row.weight_version) return "–";
  return (
    <>
      <Text value={row.weight_version} max={24} />
      {row.behind ? <Badge tone="warn">{row.behind} behind</Badge> : null}
    </>
  );
}

function columnsOf(data: ProgramData, rows: Row[]): Column<Row>[] {
  return [...fixedColumns(data), ...knownColumns(data, rows)];
}

/** Columns of what only some daemons and engines tell. */
function knownColumns({ view }: ProgramData, rows: Row[]): Column<Row>[] {
  const columns: Column<Row>[] = [];
  if (rows.some((row) => row.predicted_tokens != null))
    columns.push({
      id: "left",
      header: "Left: predicted / real",
      width: "minmax(128px, 1fr)",
      numeric: true,
      wideOnly: true,
      cell: (row) => <Left row={row} ended={Boolean(view.ended)} />,
    });
  if (rows.some((row) => row.weight_version))
    columns.push({
      id: "weights",
      header: "Weights",
      width: "minmax(96px, 1fr)",
      wideOnly: true,
      cell: (row) => <Weights row={row} />,
    });
  return columns;
}

function fixedColumns(data: ProgramData): Column<Row>[] {
  const { nameOf } = data.names;
  const between = (from?: number | null, to?: number | null) =>
    from && to ? duration(to - from) : "–";
  return [
    { id: "number", header: "#", width: "36px", numeric: true, cell: (row) => count(row.number) },
    {
      id: "arrived",
      header: "Arrived",
      width: "72px",
      cell: (row) => <Time us={row.arrived_at_us} exact />,
    },
    {
      id: "worker",
      header: "Worker",
      width: "76px",
      wideOnly: true,
      cell: (row) => (row.worker ? nameOf(row.worker) : "–"),
    },
    { id: "outcome", header: "Outcome", width: "84px", cell: (row) => <Outcome step={row} /> },
    {
      id: "queued",
      header: "Queued",
      width: "72px",
      numeric: true,
      cell: (row) => duration(row.waited_us),
    },
    {
      id: "prefill",
      header: "Prefill",
      width: "72px",
      numeric: true,
      wideOnly: true,
      cell: (row) => between(row.dispatched_at_us, row.first_token_at_us),
    },
    {
      id: "ran",
      header: "At worker",
      width: "76px",
      numeric: true,
      cell: (row) => between(row.dispatched_at_us, row.finished_at_us),
    },
    {
      id: "prompt",
      header: "Prompt",
      width: "72px",
      numeric: true,
      wideOnly: true,
      cell: (row) => count(row.prompt_tokens),
    },
    {
      id: "cached",
      header: "In cache",
      width: "68px",
      numeric: true,
      wideOnly: true,
      cell: (row) =>
        row.prompt_tokens > 0 && row.cached_tokens != null
          ? percent(row.cached_tokens / row.prompt_tokens)
          : "–",
    },
    {
      id: "output",
      header: "Output of limit",
      width: "minmax(112px, 1fr)",
      numeric: true,
      wideOnly: true,
      cell: (row) => `${count(row.output_tokens)} / ${row.limit === null ? "–" : count(row.limit)}`,
    },
  ];
}

/** The list of a program's steps from this one on, with no other on it. */
function stepPath(program: string, step: number): string {
  return urlOf(
    "/api/v1/programs/{program}/steps",
    { program },
    { after: step > 0 ? step - 1 : null, limit: 1 },
  );
}

function StepDetail({ program, row, data }: { program: string; row: Row; data: ProgramData }) {
  return (
    <Panel
      title={`Step ${row.number}`}
      note={<Outcome step={row} />}
      actions={
        <button
          type="button"
          className="button small"
          onClick={() => void copyText(curlOf(stepPath(program, row.step)), "Command")}
        >
          Copy as curl
        </button>
      }
    >
      <dl className="facts">
        <dt>Arrived</dt>
        <dd>
          <Time us={row.arrived_at_us} exact />
        </dd>
        <dt>Worker</dt>
        <dd>{row.worker ? data.names.nameOf(row.worker) : "none yet"}</dd>
        <dt>Waited</dt>
        <dd>{duration(row.waited_us)}</dd>
        <dt>Prompt</dt>
        <dd>
          {count(row.prompt_tokens)} tokens,{" "}
          {row.cached_tokens == null
            ? "the engine does not say how many were in the cache"
            : `${count(row.cached_tokens)} in the cache`}
        </dd>
        <dt>Output</dt>
        <dd>
          {count(row.output_tokens)} tokens
          {row.limit === null ? "" : `, at most ${count(row.limit)}`}
        </dd>
        {row.predicted_tokens == null ? null : (
          <>
            <dt>Left after it</dt>
            <dd>
              {count(row.predicted_tokens)} tokens predicted, 9 of 10 times at most{" "}
              {count(row.predicted_tokens_p90)}; {count(row.followed)} followed
              {data.view.ended ? "" : " so far"}
            </dd>
          </>
        )}
        {row.weight_version ? (
          <>
            <dt>Weights</dt>
            <dd>
              <Text value={row.weight_version} max={64} />
              {row.behind === null
                ? ""
                : row.behind === 0
                  ? ", the newest that its job has seen"
                  : `, ${plural(row.behind, "version")} behind`}
            </dd>
          </>
        ) : null}
        {row.cause ? (
          <>
            <dt>Cause</dt>
            <dd>
              <Text value={row.cause} max={500} />
            </dd>
          </>
        ) : null}
      </dl>
      <Messages program={program} step={row.step} />
    </Panel>
  );
}
