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
