// The programs around one as lanes: what started it above its own, what it started below, a level
// under the other.
import type { ProgramView } from "../api/types";
import { visibleText } from "../format/text";
import type { Lane, Span } from "./timeline";

export interface Family {
  /** What started it, the nearest first. */
  above: ProgramView[];
  /** What it started, what they started, and so on. */
  below: ProgramView[][];
  /** Programs with more subagents than were loaded. */
  cut: string[];
  /** Programs whose subagents are not known. */
  unasked: number;
}

export interface FamilyLanes {
  above: Lane[];
  below: Lane[];
  hidden: Hidden[];
}

/** Programs without a lane, by their parents. */
export interface Hidden {
  parent: string;
  count: number;
  /** Whether there are more that were not loaded. */
  more: boolean;
}

/** How deep subagents are shown. */
export const LEVELS_MAX = 4;
/** Lanes of one level. */
const LANES_MAX = 6;

/** What the ids of the lanes of a family begin with. */
export const FAMILY = "family-";

export const ALONE: Family = { above: [], below: [], cut: [], unasked: 0 };

/** Lays a family out; programs that still live reach until `now`. */
export function familyLanes(
  family: Family,
  now: number,
  nameOf: (worker: string) => string,
): FamilyLanes {
  const hidden = new Map<string, number>(family.cut.map((parent) => [parent, 0]));
  const below = family.below.flatMap((level, at) => levelLanes(level, at, now, nameOf, hidden));
  const above = family.above.map((program, at) => ({
    id: `${FAMILY}above-${at}`,
    label: "Started by",
    spans: [spanOf(program, now, nameOf)],
  }));
  return {
    above: above.reverse(),
    below,
    hidden: [...hidden].map(([parent, count]) => ({
      parent,
      count,
      more: family.cut.includes(parent),
    })),
  };
}

/** One level in as few lanes as hold it without overlaps; what does not fit is counted. */
function levelLanes(
  level: ProgramView[],
  at: number,
  now: number,
  nameOf: (worker: string) => string,
  hidden: Map<string, number>,
): Lane[] {
  const lanes: Lane[] = [];
  for (const program of [...level].sort((a, b) => a.created_at_us - b.created_at_us)) {
    const span = spanOf(program, now, nameOf, at > 0);
    const free = lanes.find((lane) => (lane.spans.at(-1)?.to ?? 0) <= span.from);
    if (free) free.spans.push(span);
    else if (lanes.length < LANES_MAX)
      lanes.push({
        id: `${FAMILY}${at}-${lanes.length}`,
        label: at === 0 ? "Subagents" : `Subagents, level ${at + 1}`,
        spans: [span],
      });
    else hidden.set(program.parent ?? "", (hidden.get(program.parent ?? "") ?? 0) + 1);
  }
  return lanes;
}

/** The life of a program, in no state: what it did when is not read; with what started it, if that is
 *  not plain to see. */
function spanOf(
  program: ProgramView,
  now: number,
  nameOf: (worker: string) => string,
  withParent = false,
): Span {
  const ended = Boolean(program.ended);
  const of = withParent ? `, started by ${visibleText(program.parent ?? "", 60)}` : "";
  const where = program.worker ? `, now on ${nameOf(program.worker)}` : "";
  return {
    state: "life",
    from: program.created_at_us,
    to: ended ? program.updated_at_us : now,
    label: `${visibleText(program.program_id, 120)}${of}${where}`,
    program: program.program_id,
    open: !ended,
  };
}
