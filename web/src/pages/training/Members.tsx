// The groups and members of a batch, and the programs of a group that is in none.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { arrivals } from "../../api/sample";
import type { TrainingBatch, TrainingJob } from "../../api/training";
import { count, plural } from "../../format/number";
import { visibleText } from "../../format/text";
import { endText, type MemberRow, memberRows, rewardText } from "../../model/training";
import { type Column, DataTable } from "../../ui/DataTable";
import { Failure, Loading, Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";

function figure(
  id: "tokens" | "turns" | "version" | "lag",
  header: string,
  wideOnly = true,
): Column<MemberRow> {
  const cell = (row: MemberRow) => count(row[id]);
  return { id, header, width: "72px", numeric: true, wideOnly, cell };
}

interface Named {
  program: string;
}

const PROGRAM: Column<Named> = {
  id: "program",
  header: "Program",
  width: "minmax(110px, 2fr)",
  cell: (row) => (
    <Link to="/programs/$program" params={{ program: row.program }}>
      <Text value={row.program} max={120} />
    </Link>
  ),
};

const NAMES: Column<MemberRow>[] = [
  {
    id: "group",
    header: "Group",
    width: "minmax(90px, 1fr)",
    cell: (row) => <Text value={row.group} max={80} />,
  },
  PROGRAM,
];

const FIGURES: Column<MemberRow>[] = [
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
];

/** Links to a member's captured tokens, or shows the digest of what its client reported. */
function sampleColumn<T extends { program: string; sample?: string | null }>(
  { job, settings }: TrainingJob,
  batch?: number,
): Column<T> {
  return {
    id: "sample",
    header: "Sample",
    width: "90px",
    cell: ({ program, sample }) => {
      const text = sample ? <Text value={sample} max={16} /> : null;
      return settings.capture === "tokens" ? (
        <Link
          to="/training/$job/members/$program"
          params={{ job, program }}
          search={batch === undefined ? {} : { batch: String(batch) }}
          title={sample ? visibleText(sample) : undefined}
        >
          tokens
        </Link>
      ) : text ? (
        <span className="mono" title={visibleText(sample ?? "")}>
          {text}
        </span>
      ) : (
        <span className="dim">–</span>
      );
    },
  };
}

export function Members({ batch, job }: { batch: TrainingBatch; job: TrainingJob }) {
  const rows = useMemo(() => memberRows(batch), [batch]);
  const columns = useMemo(
    () => [...NAMES, sampleColumn<MemberRow>(job, batch.batch), ...FIGURES],
    [job, batch.batch],
  );
  const note = `${plural(batch.groups.length, "group")}, ${plural(rows.length, "member")}`;
  return (
    <Panel title={`Batch ${count(batch.batch)}`} note={note}>
      <div className="bounded-table">
        <DataTable
          label={`Members of batch ${batch.batch}`}
          rows={rows}
          columns={columns}
          keyOf={(row) => row.program}
        />
      </div>
    </Panel>
  );
}

/** The programs that began in a group that is in no batch. */
export function GroupMembers({ group, job }: { group: string; job: TrainingJob }) {
  const { data, error, refetch } = useQuery(arrivals(job.job));
  const rows = data?.filter((row) => row.group === group) ?? [];
  const columns = useMemo(() => [PROGRAM, sampleColumn<Named>(job)], [job]);
  return (
    <Panel
      title={
        <>
          Group <Text value={group} max={80} />
        </>
      }
      note="programs that began in it lately; some may be lost or cut since"
    >
      {rows.length > 0 ? (
        <div className="bounded-table">
          <DataTable
            label="Programs of the group"
            rows={rows}
            columns={columns}
            keyOf={(row) => row.program}
          />
        </div>
      ) : data ? (
        <p className="soft">None on record.</p>
      ) : error ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : (
        <Loading rows={3} />
      )}
    </Panel>
  );
}
