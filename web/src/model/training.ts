// Figures of training jobs: batches, lags, and what became of members.
import type {
  BatchMember,
  BiasAccount,
  DomainNeeds,
  MemberTally,
  TrainingBatch,
  TrainingJob,
  TrainingProfile,
} from "../api/training";
import { short } from "../format/number";
import type { Tone } from "./actions";
import { meanOf } from "./batchLines";

/** Maximum number of batches that are shown. */
const BATCHES_MAX = 10;

type Cut = Pick<TrainingJob, "next_batch" | "checkpoint" | "lineage">;

/** The latest batches that are cut and in no checkpoint, the newest first. */
export function batchNumbers({ next_batch, checkpoint }: Cut): number[] {
  const shown = Math.max(0, Math.min(BATCHES_MAX, next_batch - 1 - checkpoint));
  return Array.from({ length: shown }, (_, at) => next_batch - 1 - at);
}

/** Batches that do not change any more: the trainer has trained on them, and did not go back. */
export function settledBatches(
  known: TrainingBatch[],
  { next_batch, lineage }: Cut,
): Map<number, TrainingBatch> {
  // A batch that is not cut yet is that of an earlier job with this name, and so are the others.
  const isOfEarlierJob = known.some(({ batch }) => batch >= next_batch);
  const settled = known.filter((one) => one.trained && one.lineage === lineage && !isOfEarlierJob);
  return new Map(settled.map((one) => [one.batch, one]));
}

export interface BatchFigures {
  members: number;
  /** Over members with a reward; null if there are none. */
  rewardMean: number | null;
  /** Largest less smallest reward of a group, the mean over groups with rewards. */
  rewardSpread: number | null;
  tokensMean: number | null;
  lagMax: number | null;
  lagMean: number | null;
}

export function figuresOf({ groups }: TrainingBatch): BatchFigures {
  const members = groups.flatMap((group) => group.members);
  const rewards = groups.map((group) => rewardsOf(group.members));
  const rewarded = rewards.filter((group) => group.length > 0);
  return {
    members: members.length,
    rewardMean: meanOf(rewards.flat()),
    rewardSpread: meanOf(rewarded.map((group) => Math.max(...group) - Math.min(...group))),
    tokensMean: meanOf(members.map((member) => member.tokens)),
    lagMax: groups.length > 0 ? Math.max(...groups.map((group) => group.lag)) : null,
    lagMean: meanOf(groups.map((group) => group.lag)),
  };
}

function rewardsOf(members: BatchMember[]): number[] {
  return members.flatMap((member) => member.reward ?? []);
}

export interface MemberRow extends BatchMember {
  group: string;
  lag: number;
}

/** The members of a batch, group by group. */
export function memberRows({ groups }: TrainingBatch): MemberRow[] {
  return groups.flatMap(({ group, lag, members }) =>
    members.map((member) => ({ ...member, group, lag })),
  );
}

export interface AccountRow {
  what: string;
  members: number;
  tokensMean: number | null;
  turnsMean: number | null;
  rewardMean: number | null;
}

/** What became of members: all that ended, those in a batch, and those that were lost, by reason. */
export function accountRows({ begun, finished, served, lost }: BiasAccount): AccountRow[] {
  const unknown = { tokensMean: null, turnsMean: null, rewardMean: null };
  return [
    { what: "Begun", members: begun, ...unknown },
    rowOf("Finished", finished),
    rowOf("Served in a batch", served),
    ...Object.entries(lost).map(([end, tally]) => rowOf(`Lost: ${endText(end)}`, tally)),
  ];
}

function rowOf(what: string, { members, tokens, turns, reward_mean }: MemberTally): AccountRow {
  const mean = (sum: number) => (members > 0 ? sum / members : null);
  return {
    ...{ what, members, rewardMean: reward_mean },
    ...{ tokensMean: mean(tokens), turnsMean: mean(turns) },
  };
}

export interface DomainRow {
  domain: string;
  begun: number;
  finished: number;
  served: number;
  lost: number;
  /** Means over the members that finished, and over those in a batch. */
  tokens: { finished: number | null; served: number | null };
  reward: { finished: number | null; served: number | null };
}

/** What became of the members of each domain: where it differs, batches are biased. */
export function domainRows({ domains }: BiasAccount): DomainRow[] {
  return Object.entries(domains).map(([domain, { begun, finished, served, lost }]) => ({
    ...{ domain, begun, finished: finished.members, served: served.members },
    lost: Object.values(lost).reduce((sum, { members }) => sum + members, 0),
    tokens: { finished: rowOf("", finished).tokensMean, served: rowOf("", served).tokensMean },
    reward: { finished: finished.reward_mean, served: served.reward_mean },
  }));
}

export interface ProfileRow extends DomainNeeds {
  domain: string;
  /** The class that treadle proposes instead. */
  proposed: string | null;
}

/** What members of each domain need, and the classes of hardware that figures are known for. */
export function profileRows({ domains, proposed = {} }: TrainingProfile): {
  rows: ProfileRow[];
  classes: string[];
} {
  const rows = Object.entries(domains).map(([domain, needs]) => {
    const next = proposed[domain];
    const isOther = next !== undefined && next !== needs.class;
    return { ...needs, domain, proposed: isOther ? next : null };
  });
  const classes = [...new Set(rows.flatMap(({ seconds }) => Object.keys(seconds)))].sort();
  return { rows, classes };
}

/** How a member ended, in words. */
export function endText(end: string): string {
  return end.replaceAll("_", " ");
}

/** A reward with at most four digits: means are often small. */
export function rewardText(value: number | null | undefined): string {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  return Math.abs(value) < 1000 ? String(Number(value.toPrecision(4))) : short(value);
}

/** The tone of a group's state. */
export function toneOfGroup(state: string): Tone {
  const tones: Record<string, Tone> = { running: "accent", ready: "good", stale: "warn" };
  return tones[state] ?? "neutral";
}
