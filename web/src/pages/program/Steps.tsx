// The steps of a program as a table, and the details of the chosen one.
import { useMemo } from "react";
import type { EventView, StepView } from "../../api/types";
import { count, percent } from "../../format/number";
import { duration } from "../../format/time";
import { isFailed } from "../../model/timeline";
import { type Column, DataTable } from "../../ui/DataTable";
import { Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";
import { Messages } from "./Messages";
import type { ProgramData } from "./useProgramData";

interface Row extends StepView {
  number: number;
  limit: number | null;
}

/** Columns that give way to the details of a step. */
const LEFT_OUT = ["prefill", "prompt"];

export function Steps({
  data,
  selected,
  onSelect,
}: {
  data: ProgramData;
  selected: number | null;
  onSelect: (step: number) => void;
}) {
  const rows = useMemo(() => rowsOf(data.steps, data.events), [data.steps, data.events]);
  const narrow = selected !== null;
  const columns = useMemo(
    () => columnsOf(data).filter((column) => !narrow || !LEFT_OUT.includes(column.id)),
    [data, narrow],
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

function rowsOf(steps: StepView[], events: EventView[]): Row[] {
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
  }));
}

/** How a step went, in a word. */
function Outcome({ step }: { step: StepView }) {
  if (step.outcome === "open")
    return <Badge tone="accent">{step.dispatched_at_us ? "running" : "queued"}</Badge>;
  return <Badge tone={isFailed(step.outcome) ? "bad" : "neutral"}>{step.outcome}</Badge>;
}

function columnsOf(data: ProgramData): Column<Row>[] {
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
        row.prompt_tokens > 0 && row.cached_tokens !== null && row.cached_tokens !== undefined
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

function StepDetail({ program, row, data }: { program: string; row: Row; data: ProgramData }) {
  return (
    <Panel title={`Step ${row.number}`} note={<Outcome step={row} />}>
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
          {count(row.prompt_tokens)} tokens, {count(row.cached_tokens)} in the cache
        </dd>
        <dt>Output</dt>
        <dd>
          {count(row.output_tokens)} tokens
          {row.limit === null ? "" : `, at most ${count(row.limit)}`}
        </dd>
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
