// The columns of programs by group: rows of groups, and of the members of the open one.
import { Link } from "@tanstack/react-router";
import { short } from "../../format/number";
import { visibleText } from "../../format/text";
import { barsOf, type GroupedRow, type rangeOf, spreadOf, stragglerOf } from "../../model/groups";
import { rewardText, toneOfGroup } from "../../model/training";
import type { Column } from "../../ui/DataTable";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { Since } from "../../ui/Time";

type Range = ReturnType<typeof rangeOf>;

export function groupColumns(range: Range): Column<GroupedRow>[] {
  return [
    { id: "name", header: "Group", width: "minmax(130px, 2fr)", cell: Name },
    { id: "state", header: "State", width: "minmax(84px, 1.3fr)", cell: State },
    {
      id: "ended",
      header: "Ended",
      width: "64px",
      numeric: true,
      cell: ({ group, member }) => (member ? "" : `${group.ended} of ${group.size}`),
    },
    {
      id: "rewards",
      header: "Rewards",
      width: "120px",
      wideOnly: true,
      cell: (row) => <Bars row={row} range={range} />,
    },
    reward("least", "Least", ({ group }) => spreadOf(group)?.min),
    reward("mean", "Reward", ({ group, member }) =>
      member ? member.member?.reward : spreadOf(group)?.mean,
    ),
    reward("greatest", "Greatest", ({ group }) => spreadOf(group)?.max),
    { id: "waits", header: "Straggler", width: "minmax(150px, 2fr)", cell: Straggler },
  ];
}

/** A figure of a group's rewards; of a member, only the one under "Reward". */
function reward(
  id: string,
  header: string,
  of: (row: GroupedRow) => number | null | undefined,
): Column<GroupedRow> {
  const isMean = id === "mean";
  return {
    ...{ id, header, width: "72px", numeric: true, wideOnly: !isMean },
    cell: (row) => (row.member && !isMean ? "" : rewardText(of(row))),
  };
}

function Name({ group, member }: GroupedRow) {
  if (!member) return <Text value={group.group} max={120} />;
  return (
    <Link to="/programs/$program" params={{ program: member.program }} className="group-member">
      <Text value={member.program} max={120} />
    </Link>
  );
}

function State({ group, member }: GroupedRow) {
  if (!member) return <Badge tone={toneOfGroup(group.state)}>{group.state}</Badge>;
  const { state, cause } = member;
  return <span title={cause ? visibleText(cause, 300) : undefined}>{state}</span>;
}

/** A bar for each reward, on one scale for all groups. */
function Bars({ row: { group, member }, range }: { row: GroupedRow; range: Range }) {
  const spread = member ? null : spreadOf(group);
  if (!spread) return null;
  const { min, mean, max, rewards } = spread;
  const text = `${rewards.length} from ${rewardText(min)} to ${rewardText(max)}, mean ${rewardText(mean)}`;
  return (
    <span className="reward-bars" role="img" aria-label={`Rewards: ${text}`} title={text}>
      {barsOf(rewards, range.low, range.high).map((height, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: a bar is nothing but its place and height
        <span key={at} style={{ height: `${Math.max(height * 100, 8)}%` }} />
      ))}
    </span>
  );
}

/** The member that a group waits for; of a running member, for how long and how much it has run. */
function Straggler({ group, member }: GroupedRow) {
  if (member) {
    const own = member.member;
    return own ? <Effort begunUs={own.end ? null : own.begun_at_us} tokens={own.tokens} /> : null;
  }
  const last = stragglerOf(group);
  if (!last) return <span className="dim">none runs</span>;
  return (
    <>
      <Link to="/programs/$program" params={{ program: last.program }}>
        <Text value={last.program} max={80} />
      </Link>{" "}
      <Effort begunUs={last.begun_at_us} tokens={last.tokens} />
    </>
  );
}

function Effort({ begunUs, tokens }: { begunUs: number | null; tokens: number }) {
  return (
    <span className="dim">
      {begunUs === null ? null : (
        <>
          <Since us={begunUs} />,{" "}
        </>
      )}
      {short(tokens)} tokens
    </span>
  );
}
