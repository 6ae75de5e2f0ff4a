// The groups and members of a batch, and the members of a group that is in none.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useMemo } from "react";
import { type TrainingBatch, type TrainingJob, trainingGroup } from "../../api/training";
import { count, plural } from "../../format/number";
import { visibleText } from "../../format/text";
import { type OpenMember, openMembers } from "../../model/groups";
import { endText, type MemberRow, memberRows, rewardText } from "../../model/training";
import { type Column, DataTable } from "../../ui/DataTable";
import { Failure, Loading, Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";

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
function sampleColumn<T extends Named>(
  { job, settings }: TrainingJob,
  digestOf: (row: T) => string | null | undefined,
  batch?: number,
): Column<T> {
  return {
    id: "sample",
    header: "Sample",
    width: "90px",
    cell: (row) => {
      const { program } = row;
      const sample = digestOf(row);
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
    () => [...NAMES, sampleColumn<MemberRow>(job, (row) => row.sample, batch.batch), ...FIGURES],
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

const STATE: Column<OpenMember> = {
  id: "state",
  header: "State",
  width: "minmax(92px, 2fr)",
  cell: ({ state, cause }) => (
    <>
      {state} {cause ? <Text value={cause} max={300} /> : null}
    </>
  ),
};

function ofOpen(
  id: "tokens" | "turns" | "version",
  header: string,
  wideOnly = true,
): Column<OpenMember> {
  const cell = ({ member }: OpenMember) => count(member?.[id]);
  return { id, header, width: "72px", numeric: true, wideOnly, cell };
}

const OPEN_FIGURES: Column<OpenMember>[] = [
  {
    id: "reward",
    header: "Reward",
    width: "72px",
    numeric: true,
    cell: ({ member }) => rewardText(member?.reward),
  },
  ofOpen("tokens", "Tokens", false),
  ofOpen("turns", "Turns"),
  ofOpen("version", "Version"),
  {
    id: "begun",
    header: "Begun",
    width: "92px",
    numeric: true,
    wideOnly: true,
    cell: ({ member }) => (member ? <Time us={member.begun_at_us} /> : "–"),
  },
];

/** The members of a group that is in no batch, and those that it lost. */
export function GroupMembers({ group, job }: { group: string; job: TrainingJob }) {
  const { data, error, refetch } = useQuery(trainingGroup(job.job, group));
  const rows = useMemo(() => (data ? openMembers(data) : []), [data]);
  const columns = useMemo(
    () => [
      PROGRAM,
      STATE,
      sampleColumn<OpenMember>(job, (row) => row.member?.sample),
      ...OPEN_FIGURES,
    ],
    [job],
  );
  return (
    <Panel
      title={
        <>
          Group <Text value={group} max={80} />
        </>
      }
      note={data && data.surplus > 0 ? plural(data.surplus, "surplus program") : undefined}
    >
      {rows.length > 0 ? (
        <div className="bounded-table">
          <DataTable
            label="Members of the group"
            rows={rows}
            columns={columns}
            keyOf={(row) => row.program}
          />
        </div>
      ) : data ? (
        <p className="soft">None has begun.</p>
      ) : data === null ? (
        <p className="soft">It is in a batch, was given up, or was never submitted.</p>
      ) : error ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : (
        <Loading rows={3} />
      )}
    </Panel>
  );
}
