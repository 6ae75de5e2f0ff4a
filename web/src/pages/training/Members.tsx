// The groups and members of a batch.
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import type { TrainingBatch } from "../../api/training";
import { count, plural } from "../../format/number";
import { visibleText } from "../../format/text";
import { endText, type MemberRow, memberRows, rewardText } from "../../model/training";
import { type Column, DataTable } from "../../ui/DataTable";
import { Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";

function figure(
  id: "tokens" | "turns" | "version" | "lag",
  header: string,
  wideOnly = true,
): Column<MemberRow> {
  const cell = (row: MemberRow) => count(row[id]);
  return { id, header, width: "72px", numeric: true, wideOnly, cell };
}

const COLUMNS: Column<MemberRow>[] = [
  {
    id: "group",
    header: "Group",
    width: "minmax(90px, 1fr)",
    cell: (row) => <Text value={row.group} max={80} />,
  },
  {
    id: "program",
    header: "Program",
    width: "minmax(110px, 2fr)",
    cell: (row) => (
      <Link to="/programs/$program" params={{ program: row.program }}>
        <Text value={row.program} max={120} />
      </Link>
    ),
  },
  {
    id: "end",
    header: "End",
    width: "92px",
    wideOnly: true,
    cell: (row) => endText(row.end),
  },
  {
    id: "reward",
    header: "Reward",
    width: "72px",
    numeric: true,
    cell: (row) => <span title={row.reward?.toString()}>{rewardText(row.reward)}</span>,
  },
  figure("tokens", "Tokens", false),
  figure("turns", "Turns"),
  figure("version", "Version"),
  figure("lag", "Lag"),
  {
    id: "sample",
    header: "Sample",
    width: "minmax(90px, 1fr)",
    wideOnly: true,
    cell: (row) =>
      row.sample ? (
        <span className="mono" title={visibleText(row.sample)}>
          <Text value={row.sample} max={120} />
        </span>
      ) : (
        <span className="dim">–</span>
      ),
  },
];

export function Members({ batch }: { batch: TrainingBatch }) {
  const rows = useMemo(() => memberRows(batch), [batch]);
  const note = `${plural(batch.groups.length, "group")}, ${plural(rows.length, "member")}`;
  return (
    <Panel title={`Batch ${count(batch.batch)}`} note={note}>
      <div className="bounded-table">
        <DataTable
          label={`Members of batch ${batch.batch}`}
          rows={rows}
          columns={COLUMNS}
          keyOf={(row) => row.program}
        />
      </div>
    </Panel>
  );
}
