/** The world `shaping`: how many members groups of training runs sample, and which are trained. */

import type { Keys } from "./config";
import { type Definition, type Plugin, type Self, Slot, supported, unsigned } from "./policy";

/** States of members: it runs, it completed, or a limit on its length ended it. */
export const [RUNNING, COMPLETED, TRUNCATED] = [0, 1, 2];

/** Groups, one row each, in the order of their queue. */
export interface GroupColumns {
  /** An opaque number, the same each time that this prompt is submitted. */
  readonly prompt: readonly number[];
  /** An opaque number, the same for all prompts of one domain; 0 without a domain. */
  readonly domain: readonly number[];
  /** Members that are trained. */
  readonly size: readonly number[];
  /** Most members that may be sampled. */
  readonly sizeMax: readonly number[];
  /** Members that are sampled, as `size` answered; 0 in a call of `size`. */
  readonly sampled: readonly number[];
  /** How often members of the group were put off by the verdict `again`. */
  readonly postponed: readonly number[];
}

/** Members, one row each, group after group and within a group in the order in which they began. */
export interface MemberColumns {
  /** The row of its group. */
  readonly group: readonly number[];
  /** `RUNNING`, `COMPLETED` or `TRUNCATED`. */
  readonly state: readonly number[];
  /**
   * Tokens that it has sampled, all steps together. Of one that its client samples, they are known
   * only at its end.
   */
  readonly tokens: readonly number[];
  /** LLM calls finished. */
  readonly turns: readonly number[];
  /** Time since it began, in milliseconds; of one that ended, until its end. */
  readonly elapsedMs: readonly number[];
  /** By how many training steps the weights in service are newer than its first token. */
  readonly lag: readonly number[];
  /** Groups in a batch. */
  readonly batchGroups: number;
  /** Groups that could be in the next batch already. */
  readonly readyGroups: number;
  /** The groups. */
  readonly groups: GroupColumns;
}

/**
 * What becomes of a running member: it runs on; it ends, and its group gets no other member for it,
 * unless fewer than the group's size would be left; it ends, and its group gets another one later.
 * A group that has no member left then goes to the end of the queue, at most as often as the job's
 * `starved_after`.
 */
export type Verdict = "go-on" | "end" | "again";

/** A policy of the world `shaping`. */
export interface ShapingPolicy<C extends Keys, S> extends Definition<C, S> {
  /** How many members each group samples, from its size up to `sizeMax`. */
  size(groups: GroupColumns, self: Self<C, S>): readonly number[];
  /** A verdict for each member; of those that have ended, only `again` counts. */
  curtail?(members: MemberColumns, self: Self<C, S>): readonly Verdict[];
  /** Which members are trained: as many of each group as its size. */
  select?(members: MemberColumns, self: Self<C, S>): readonly boolean[];
}

/** Members as the contract has them: groups are given beside. */
export type GivenMembers = Omit<MemberColumns, "groups">;

/** The interface `shaping-policy` of the contract. */
export interface ShapingExports {
  size(groups: GroupColumns): number[];
  curtail(members: GivenMembers, groups: GroupColumns): Verdict[];
  select(members: GivenMembers, groups: GroupColumns): boolean[];
}

/** What a component of the world `shaping` exports. */
export function defineShaping<C extends Keys, S = undefined>(
  policy: ShapingPolicy<C, S>,
): { plugin: Plugin; shapingPolicy: ShapingExports } {
  const slot = new Slot(policy, ["size", "curtail", "select"]);
  const shapingPolicy: ShapingExports = {
    size: (groups) => slot.ask((self) => Array.from(policy.size(plainGroups(groups), self))),
    curtail: (members, groups) => slot.ask((self) => Array.from(supported(policy.curtail).call(policy, plain(members, groups), self))),
    select: (members, groups) => slot.ask((self) => Array.from(supported(policy.select).call(policy, plain(members, groups), self))),
  };
  return { plugin: slot.plugin(), shapingPolicy };
}

/** The rows of each group's members. */
export function rowsOfGroups(members: MemberColumns): number[][] {
  const rows: number[][] = members.groups.size.map(() => []);
  members.group.forEach((group, row) => rows[group].push(row));
  return rows;
}

/** Columns of bytes arrive as `Uint8Array`, and large counts as negative numbers. */
function plain(members: GivenMembers, groups: GroupColumns): MemberColumns {
  const { state, turns, lag } = members;
  return { ...members, state: Array.from(state), turns: unsigned(turns), lag: unsigned(lag), groups: plainGroups(groups) };
}

function plainGroups(groups: GroupColumns): GroupColumns {
  return { ...groups, postponed: unsigned(groups.postponed) };
}
