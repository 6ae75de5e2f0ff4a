// The steps of a member: what each sampled, and what stood between them.
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useMemo } from "react";
import { firstMessages, type MemberSteps, toolTurns } from "../../api/sample";
import { count, plural } from "../../format/number";
import { logprobText, type Turn, toolsText, turnsOf } from "../../model/sample";
import { type Column, DataTable } from "../../ui/DataTable";
import { Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";

const COLUMNS: Column<Turn>[] = [
  { id: "step", header: "Step", width: "44px", cell: (row) => count(row.number) },
  {
    id: "before",
    header: "Before it",
    width: "minmax(120px, 1fr)",
    cell: ({ before, tools }) => (
      <>
        {count(before.tokens)} <span className="dim">{before.what}</span>
        {tools.length > 0 ? (
          <>
            {" "}
            <Text value={toolsText(tools)} max={120} />
          </>
        ) : null}
      </>
    ),
  },
  {
    id: "sampled",
    header: "Sampled",
    width: "72px",
    numeric: true,
    cell: (row) => count(row.sampled),
  },
  {
    id: "logprob",
    header: "Mean log-probability",
    width: "130px",
    numeric: true,
    wideOnly: true,
    cell: (row) => logprobText(row.logprob),
  },
  {
    id: "version",
    header: "Version",
    width: "104px",
    numeric: true,
    wideOnly: true,
    cell: (row) => row.versions,
  },
  {
    id: "sequence",
    header: "Sequence",
    width: "72px",
    numeric: true,
    wideOnly: true,
    cell: (row) => count(row.trained?.sequence),
  },
  {
    id: "notes",
    header: "Notes",
    width: "minmax(140px, 1fr)",
    cell: (row) => <Text value={row.notes.join("; ")} />,
  },
];

export function Turns({ steps }: { steps: MemberSteps }) {
  const kept = useQuery(firstMessages(steps.program)).data?.kept ?? false;
  const { data: tools } = useQuery({ ...toolTurns(steps), enabled: kept });
  const rows = useMemo(() => turnsOf(steps, tools), [steps, tools]);
  const navigate = useNavigate({ from: "/training/$job/members/$program" });
  const open = ({ number, trained, before }: Turn) => {
    const place = trained
      ? { of: String(trained.sequence), at: String(trained.start) }
      : { of: `step-${number}`, at: String(before.tokens) };
    void navigate({
      search: (before) => ({ ...before, ...place }),
      replace: true,
      resetScroll: false,
    });
  };
  return (
    <Panel
      title="Turns"
      note={`${plural(rows.length, "step")}, numbered from 0; a row shows its tokens`}
    >
      <div className="bounded-table">
        <DataTable
          label="Turns"
          rows={rows}
          columns={COLUMNS}
          keyOf={(row) => String(row.number)}
          onOpen={open}
        />
      </div>
    </Panel>
  );
}
