// Lines of a training job: rewards, tokens, lags and losses, by batch, by version or over time.
import type { BatchMember, TrainingBatch } from "../api/training";
import type { EventView } from "../api/types";

/** Kinds of events that tell when batches were cut and what was lost. */
export const BATCH_KINDS = [
  "batch_cut",
  "member_dropped",
  "version_served",
  "version_told",
  "job_removed",
] as const;

export type Axis = "batch" | "version" | "time";

export interface Lines {
  /** Batches, versions, or times of the journal in microseconds, ascending. */
  at: number[];
  rewards: (number | null)[];
  tokens: (number | null)[];
  lagMax: (number | null)[];
  lagMean: (number | null)[];
  /** Members that failed, and those that treadle ended or left out; null if not on record. */
  failed: (number | null)[];
  cut: (number | null)[];
}

/** How members are lost that treadle ends or leaves out. The others failed. */
const BY_TREADLE: readonly string[] = ["cut", "curtailed", "postponed", "unselected"];

interface Losses {
  failed: number;
  cut: number;
}

export interface BatchRecord {
  /** When each batch was cut. */
  cutAt: Map<number, number>;
  /** Members that were lost since the batch before. */
  ofBatch: Map<number, Losses>;
  /** Members that were lost while engines had a version. */
  ofVersion: Map<number, Losses>;
}

interface EventBody {
  batch: number;
  version: number;
  end: string;
}

/** What the journal has of a job's batches. `more` says that it has older events. */
export function recordOf(events: EventView[], more: boolean): BatchRecord {
  const record: BatchRecord = { cutAt: new Map(), ofBatch: new Map(), ofVersion: new Map() };
  const none = (): Losses => ({ failed: 0, cut: 0 });
  // What was before the first event on record is not known.
  let [since, sinceVersion] = more ? [null, null] : [none(), none()];
  let version = 0;
  for (const { kind, event, at_us } of events) {
    const body = event as unknown as EventBody;
    if (kind === "job_removed") {
      for (const map of Object.values(record)) map.clear();
      [since, sinceVersion, version] = [none(), none(), 0];
    } else if (kind === "batch_cut") {
      record.cutAt.set(body.batch, at_us);
      if (since) record.ofBatch.set(body.batch, since);
      since = none();
    } else if (kind === "member_dropped") {
      const what = BY_TREADLE.includes(body.end) ? "cut" : "failed";
      if (since) since[what] += 1;
      if (sinceVersion) sinceVersion[what] += 1;
    } else if (body.version !== version || !sinceVersion) {
      version = body.version;
      sinceVersion = record.ofVersion.get(version) ?? none();
    }
    if (sinceVersion) record.ofVersion.set(version, sinceVersion);
  }
  return record;
}

/** The lines of batches, which come in any order. */
export function linesOf(batches: TrainingBatch[], record: BatchRecord, axis: Axis): Lines {
  if (axis === "version") return byVersion(batches, record);
  const points = batches.flatMap((one): Point[] => {
    const at = axis === "batch" ? one.batch : record.cutAt.get(one.batch);
    if (at === undefined) return [];
    const members = one.groups.flatMap((group) => group.members);
    const lags = one.groups.map((group) => group.lag);
    return [{ at, members, lags, lost: record.ofBatch.get(one.batch) }];
  });
  return drawn(points);
}

/** By the versions that sampled members, and at whose oldest first token groups began. */
function byVersion(batches: TrainingBatch[], record: BatchRecord): Lines {
  const points = new Map<number, Point>();
  const pointOf = (at: number): Point => {
    const known = points.get(at);
    if (known) return known;
    const point = { at, members: [], lags: [], lost: record.ofVersion.get(at) };
    points.set(at, point);
    return point;
  };
  for (const { version, lag, members } of batches.flatMap(({ groups }) => groups)) {
    pointOf(version).lags.push(lag);
    for (const member of members) pointOf(member.version).members.push(member);
  }
  return drawn([...points.values()]);
}

interface Point {
  at: number;
  members: BatchMember[];
  lags: number[];
  lost: Losses | undefined;
}

function drawn(points: Point[]): Lines {
  points.sort((a, b) => a.at - b.at);
  const lineOf = (value: (point: Point) => number | null) => points.map(value);
  return {
    at: points.map(({ at }) => at),
    rewards: lineOf(({ members }) => meanOf(members.flatMap(({ reward }) => reward ?? []))),
    tokens: lineOf(({ members }) => meanOf(members.map(({ tokens }) => tokens))),
    lagMax: lineOf(({ lags }) => (lags.length > 0 ? Math.max(...lags) : null)),
    lagMean: lineOf(({ lags }) => meanOf(lags)),
    failed: lineOf(({ lost }) => lost?.failed ?? null),
    cut: lineOf(({ lost }) => lost?.cut ?? null),
  };
}

export function meanOf(values: number[]): number | null {
  if (values.length === 0) return null;
  return values.reduce((sum, value) => sum + value, 0) / values.length;
}
