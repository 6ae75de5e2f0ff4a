// Members of training jobs as the journal tells of them.
import type { EventView } from "../api/types";

export interface MemberRecord {
  program: string;
  group: string;
  /** How it ended; null while it runs, and if only the release of its program tells. */
  end: string | null;
  reward: number | null;
  /** Why its tokens could not be captured or its reward not be computed. */
  cause: string | null;
}

interface Told {
  member?: { job: string; group: string; program: string };
  end?: string;
  /** Rewards are text in the journal. */
  reward?: string;
  reward_millionths?: number;
  cause?: string;
}

/** The members of a job in the order in which they began, from events in any order. */
export function membersOf(job: string, events: EventView[]): MemberRecord[] {
  const members = new Map<string, MemberRecord>();
  for (const { kind, program, event } of events.toSorted((a, b) => a.seq - b.seq)) {
    const told = event as Told;
    const at = told.member;
    if (at && at.job !== job) continue;
    const name = at?.program ?? program ?? "";
    const group = at?.group ?? members.get(name)?.group;
    // A program may have a reward without being a member.
    if (group === undefined) continue;
    const known = members.get(name) ?? { end: null, reward: null, cause: null };
    members.set(name, { ...known, program: name, group, ...changeOf(kind, told) });
  }
  return [...members.values()];
}

function changeOf(kind: string, told: Told): Partial<MemberRecord> {
  const { end, reward, reward_millionths: millionths, cause = null } = told;
  if (kind === "capture_failed" || kind === "reward_failed") return { end: kind, cause };
  return {
    ...(end === undefined ? {} : { end, cause: null }),
    ...(reward === undefined ? {} : { reward: Number(reward) }),
    ...(millionths === undefined ? {} : { reward: millionths / 1e6 }),
  };
}
