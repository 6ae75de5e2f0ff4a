// Groups of training jobs that are in no batch, and their members.
import type { GroupMember, TrainingGroup } from "../api/training";
import { endText } from "./training";

export interface OpenMember {
  program: string;
  /** Running, or how it ended or was lost. */
  state: string;
  /** Why it was lost or is incomplete, if that is known. */
  cause: string | null;
  /** Its figures; null for one that was lost. */
  member: GroupMember | null;
}

/** The members of a group, then those that it lost, the latest first. */
export function openMembers({ members, lost }: TrainingGroup): OpenMember[] {
  return [
    ...members.map((member) => ({
      ...{ program: member.program, cause: member.incomplete ?? null, member },
      state: member.end ? endText(member.end) : "running",
    })),
    ...lost.toReversed().map(({ program, end, cause }) => ({
      ...{ program, cause, member: null },
      state: `lost: ${endText(end)}`,
    })),
  ];
}

export interface RewardSpread {
  min: number;
  mean: number;
  max: number;
  /** Ascending. */
  rewards: number[];
}

/** The rewards of the members that have one; null if none has. */
export function spreadOf({ members }: TrainingGroup): RewardSpread | null {
  const rewards = members.flatMap(({ reward }) => reward ?? []).sort((a, b) => a - b);
  const [min, max] = [rewards[0], rewards.at(-1)];
  if (min === undefined || max === undefined) return null;
  const mean = rewards.reduce((sum, reward) => sum + reward, 0) / rewards.length;
  return { min, mean, max, rewards };
}

/** The running member that began first, which the group waits for; of several, the one with the most
 *  tokens. */
export function stragglerOf({ members }: TrainingGroup): GroupMember | null {
  const running = members.filter(({ end }) => end === null);
  const order = (a: GroupMember, b: GroupMember) =>
    a.begun_at_us - b.begun_at_us || b.tokens - a.tokens;
  return running.toSorted(order)[0] ?? null;
}

/** Bars that fit beside a group. */
const BARS_MAX = 16;

/** Heights of bars for rewards in ascending order, from 0 to 1 over the whole list; of many, evenly
 *  spread ones. */
export function barsOf(rewards: number[], low: number, high: number): number[] {
  const count = Math.min(rewards.length, BARS_MAX);
  const step = count > 1 ? (rewards.length - 1) / (count - 1) : 0;
  const chosen = Array.from({ length: count }, (_, at) => rewards[Math.round(at * step)] ?? low);
  return chosen.map((reward) => (high > low ? (reward - low) / (high - low) : 0));
}

/** Least and greatest reward of all groups, so that their bars can be compared. */
export function rangeOf(groups: TrainingGroup[]): { low: number; high: number } {
  const spreads = groups.map(spreadOf).filter((spread) => spread !== null);
  const low = spreads.reduce((least, { min }) => Math.min(least, min), 0);
  return { low, high: spreads.reduce((most, { max }) => Math.max(most, max), low) };
}

export interface GroupedRow {
  group: TrainingGroup;
  /** A member of the group; null for the row of the group. */
  member: OpenMember | null;
}

/** A row for each group, and those of the members of the open one below it. */
export function groupedRows(groups: TrainingGroup[], open: string | undefined): GroupedRow[] {
  return groups.flatMap((group) => [
    { group, member: null },
    ...(group.group === open ? openMembers(group).map((member) => ({ group, member })) : []),
  ]);
}
