// Updates that treadle makes, and the versions that engines held between them, found again from the
// journal in the order of host/core/weights/src/update.rs.
import type { EventView, WeightsView } from "../api/types";
import type { Span } from "./timeline";
import {
  type CallAnswer,
  type Checksums,
  compare,
  Engine,
  isSame,
  STATE_OF,
  type TrainerCall,
  type WeightsCall,
} from "./weightsEngine";

export interface WeightsUpdate {
  /** Position of its beginning in the journal. */
  seq: number;
  weights: WeightsView;
  rolling: boolean;
  began: number;
  /** Since when no step begins; null before. */
  fenced: number | null;
  ended: number | null;
  /** Driven if the job's trainer pauses and loads the engines by itself. */
  stage: "preparing" | "cutting" | "loading" | "resuming" | "driven";
  /** Engines that serve the version at its end. */
  held: number;
  behind: Map<number, string>;
  /** How long engines were paused, in microseconds. */
  paused: Map<number, number>;
}

export interface WeightsHistory {
  updates: WeightsUpdate[];
  /** The spans of each engine. */
  engines: Map<number, Span[]>;
}

interface Running {
  row: WeightsUpdate;
  workers: Set<number>;
  /** Engines with a call from before it began, which does not matter to it. */
  called: Set<number>;
  readyBy: number;
  quorum: number;
  checksums: Checksums;
}

/** Events that end an update. */
const ENDS = ["weights_published", "weights_released", "rolled_back", "job_removed"];
const NO_PART = "it did not answer when the update began, or was not ready in time";

/** An engine with what is recorded of it. */
export interface Track<E extends Engine = Engine> {
  engine: E;
  spans: Span[];
  pausedAt: number | null;
}

export interface ReplayInput {
  /** Oldest first. */
  events: EventView[];
  /** Engines that the job has now. */
  workers: number[];
  now: number;
  /** Gives the colour of a version. */
  tokenOf: (weights: WeightsView | null) => string;
}

export class OwnReplay {
  /** Also those of engines that were removed. */
  spans = new Map<number, Span[]>();
  updates: WeightsUpdate[] = [];
  private tracks = new Map<number, Track>();
  private update: Running | null = null;
  /** Something changed for engines that nothing was heard of. */
  private isFurther = false;
  /** Engines that are called later. */
  private resting = new Set<number>();
  private serving: WeightsView | null = null;
  private checksums: Checksums = new Map();
  private begun = false;

  constructor(private input: ReplayInput) {}

  take({ kind, at_us: now, seq, event }: EventView, at: number): void {
    const body = event as unknown as EventBody;
    if (kind === "weights_published") this.publish(body, seq, at, now);
    // What engines had before the first update on record is not known.
    if (!this.begun) return;
    if (kind === "weights_call_ended") this.callEnded(body, now);
    if (kind === "weights_released" || kind === "job_removed") this.release(now);
    if (kind === "rolled_back") this.goBack(now);
    if (kind === "worker_lost") this.lose(body.worker, "it did not answer", now);
    if (kind === "worker_removed") this.remove(body.worker, now);
    if (kind === "daemon_restarted") this.restart(now);
    this.settle(now, kind === "weights_call_ended" ? body.worker : null);
  }

  /** Ends spans that are under way with the present. */
  close(): void {
    if (this.begun) this.settle(this.input.now, null);
    closeSpans(this.spans, this.input.now);
  }

  private track(id: number): Track {
    const known = this.tracks.get(id);
    if (known) return known;
    const spans = this.spans.get(id) ?? [];
    const track = { engine: new Engine(), spans, pausedAt: null };
    this.tracks.set(id, track);
    this.spans.set(id, spans);
    return track;
  }

  private publish({ weights, plan }: EventBody, seq: number, at: number, now: number): void {
    const isKnown = [this.update?.row.weights ?? null, this.serving].some(
      (known) => known !== null && isSame(known, weights),
    );
    if (isKnown) return;
    if (this.update) this.end(now);
    this.begun = true;
    const { workers, isOver } = this.participants(at);
    for (const id of [...workers, ...this.input.workers]) this.track(id);
    // One engine after the other goes by their ids.
    const all = [...this.tracks.keys()].sort((a, b) => a - b);
    const out = isOver ? all.filter((id) => !workers.has(id)) : [];
    const row: WeightsUpdate = {
      ...{ seq, weights, rolling: plan?.rolling ?? false, began: now, fenced: null, ended: null },
      ...{ stage: "preparing", held: 0, paused: new Map() },
      behind: new Map(out.map((id) => [id, NO_PART])),
    };
    this.updates.push(row);
    this.update = {
      row,
      workers: new Set(all.filter((id) => !out.includes(id))),
      called: new Set(all.filter((id) => this.track(id).engine.call !== null)),
      readyBy: now + (plan?.ready_s ?? 600) * 1e6,
      quorum: plan?.quorum || Math.floor(all.length / 2) + 1,
      checksums: new Map(),
    };
  }

  /**
   * The engines that take part in the update that is published here: no engine gets a second call
   * before each has answered the first. `isOver` if they all have.
   */
  private participants(at: number): { workers: Set<number>; isOver: boolean } {
    const workers = new Set<number>();
    const answers = new Map<number, number>();
    const { events } = this.input;
    for (let later = at + 1; later < events.length; later += 1) {
      const { kind, event } = events[later] as EventView;
      if (ENDS.includes(kind)) return { workers, isOver: true };
      if (kind !== "weights_call_ended") continue;
      const { worker } = event as unknown as EventBody;
      const own = (answers.get(worker) ?? 0) + 1;
      answers.set(worker, own);
      if (own > (this.tracks.get(worker)?.engine.call ? 2 : 1)) return { workers, isOver: true };
      workers.add(worker);
    }
    return { workers, isOver: false };
  }

  private callEnded({ worker, answer }: EventBody, now: number): void {
    const track = this.track(worker);
    const { engine } = track;
    const call = this.calledWith(engine, answer, now);
    const { update } = this;
    const isOwn = update !== null && isSame(engine.loading, update.row.weights);
    const takesPart = (update?.workers.has(worker) && !update.called.delete(worker)) ?? false;
    const stays = engine.ended(call, answer, isOwn ? update.checksums : this.checksums, now);
    if (answer === "done" && call === "pause") track.pausedAt = now;
    if (answer === "done" && call === "resume" && track.pausedAt !== null) {
      if (takesPart) update?.row.paused.set(worker, now - track.pausedAt);
      track.pausedAt = null;
    }
    if (!stays && takesPart) this.leaveBehind(worker, engine.cause ?? "");
  }

  /** The call that ended. */
  private calledWith(engine: Engine, answer: CallAnswer, now: number): WeightsCall {
    const reports = typeof answer !== "string" && "reports" in answer;
    // Nothing was due: an answer to a step must have shown that it has another version.
    if (engine.call === null && this.serving && engine.serves(this.serving)) {
      engine.doubt("an answer named another version, or it was replaced", now);
      if (answer !== "done") engine.begin("verify", this.serving);
    }
    if (reports) return "verify";
    const call = engine.call ?? this.due(engine, null)?.call ?? "prepare";
    return call === "verify" && answer === "done" ? "prepare" : call;
  }

  private leaveBehind(worker: number, cause: string): void {
    if (!this.update?.workers.delete(worker)) return;
    this.update.row.behind.set(worker, cause);
    this.isFurther = true;
  }

  private lose(worker: number, cause: string, now: number): void {
    const engine = this.tracks.get(worker)?.engine;
    if (!engine) return;
    engine.doubt(cause, now);
    this.leaveBehind(worker, "it was lost during the update");
  }

  private remove(worker: number, now: number): void {
    const track = this.tracks.get(worker);
    if (!track) return;
    this.leaveBehind(worker, "it was removed");
    endSpan(track.spans, now);
    this.tracks.delete(worker);
  }

  private restart(now: number): void {
    const cause = "the daemon restarted before the engine answered";
    for (const [worker, { engine }] of this.tracks)
      if (engine.call) this.callEnded({ worker, answer: { failed: { cause } } } as EventBody, now);
  }

  private goBack(now: number): void {
    if (this.update) this.endRow(this.update.row, now);
    this.update = null;
    this.serving = null;
    for (const { engine } of this.tracks.values())
      engine.doubt("the run went back to a checkpoint; publish its version", now);
  }

  private release(now: number): void {
    if (this.update) this.endRow(this.update.row, now);
    for (const { spans } of this.tracks.values()) endSpan(spans, now);
    this.tracks.clear();
    this.update = null;
    this.serving = null;
    this.begun = false;
  }

  /**
   * Takes the update as far as it can go, and makes the calls that are due. If only a call of
   * `worker` ended, the others stay as they are unless the update came further.
   */
  private settle(now: number, worker: number | null): void {
    const before = this.update;
    while (this.update && this.advance(this.update, now)) this.isFurther = true;
    const isOne = worker !== null && !this.isFurther && this.update === before;
    this.isFurther = false;
    for (const id of isOne ? [worker, ...this.resting] : [...this.tracks.keys()])
      this.settleEngine(id, now);
  }

  private settleEngine(id: number, now: number): void {
    const track = this.tracks.get(id);
    if (!track) return;
    const { engine } = track;
    const rests = now < engine.restsUntil;
    const due = engine.call === null && !rests ? this.due(engine, id) : null;
    if (due) engine.begin(due.call, due.weights);
    if (rests) this.resting.add(id);
    else this.resting.delete(id);
    this.record(id, track, now);
  }

  /** Whether the update came a stage further. */
  private advance(update: Running, now: number): boolean {
    const { row } = update;
    const own = [...update.workers].map((id) => this.track(id).engine);
    if (row.stage === "preparing") return this.prepared(update, own, now);
    if (own.length === 0) {
      this.end(now);
      return false;
    }
    const turn = row.rolling ? own.slice(0, 1) : own;
    return row.stage === "loading"
      ? this.loaded(update, turn, now)
      : this.resumed(update, turn, now);
  }

  private loaded(update: Running, turn: Engine[], now: number): boolean {
    const { row } = update;
    if (!turn.every((engine) => isLoaded(engine, row.weights))) return false;
    const { differing, agreed } = compare(turn);
    row.stage = "resuming";
    update.checksums = new Map([...update.checksums, ...agreed]);
    for (const [id, { engine }] of this.tracks) {
      if (!differing.includes(engine)) continue;
      engine.tear(now);
      this.leaveBehind(id, engine.cause ?? "");
    }
    return true;
  }

  private resumed({ row, workers }: Running, turn: Engine[], now: number): boolean {
    const serve = turn.every((engine) => engine.serves(row.weights));
    if (!row.rolling) {
      if (serve) this.end(now);
      return false;
    }
    const isCalled = turn.some((engine) => engine.call !== null);
    if (isCalled || turn.some((engine) => isLoaded(engine, row.weights))) return false;
    const [next] = workers;
    if (serve && next !== undefined) workers.delete(next);
    row.stage = "loading";
    return true;
  }

  private prepared(update: Running, own: Engine[], now: number): boolean {
    const { row } = update;
    const isReady = (engine: Engine) => engine.ready && engine.call === null;
    if (!own.every(isReady) && now < update.readyBy) return false;
    for (const id of [...update.workers])
      if (!isReady(this.track(id).engine)) this.leaveBehind(id, "it was not ready in time");
    if (update.workers.size === 0 || update.workers.size < update.quorum) {
      this.end(Math.min(now, update.readyBy));
      return false;
    }
    row.fenced = Math.min(now, update.readyBy);
    // The journal does not tell how long steps that were cut were waited for.
    row.stage = "loading";
    return true;
  }

  private end(now: number): void {
    if (!this.update) return;
    const { row, checksums } = this.update;
    this.endRow(row, now);
    this.update = null;
    for (const { engine } of this.tracks.values()) engine.ready = false;
    if (row.held === 0) return;
    this.serving = row.weights;
    this.checksums = checksums;
  }

  private endRow(row: WeightsUpdate, now: number): void {
    row.ended = now;
    const all = [...this.tracks.values()];
    row.held = all.filter(({ engine }) => engine.serves(row.weights)).length;
  }

  /** The next call to an engine, and the version that it is about. */
  private due(engine: Engine, id: number | null): Due | null {
    const { update } = this;
    if (!update) return this.mend(engine);
    if (id !== null && !update.workers.has(id)) return null;
    const { stage, rolling, weights } = update.row;
    if (engine.serves(weights)) return null;
    if (stage === "preparing") return engine.ready ? null : { call: "prepare", weights };
    const [next] = update.workers;
    if (rolling && id !== null && id !== next) return null;
    const isOwn = isSame(engine.loading, weights);
    if (["held", "torn", "unknown"].includes(engine.phase)) return { call: "pause", weights };
    if (engine.phase === "verifying" && isOwn) return { call: "verify", weights };
    if (engine.phase === "clearing" && isOwn) return { call: "clear", weights };
    if (engine.phase === "resuming" && isOwn)
      return stage === "loading" ? null : { call: "resume", weights };
    return { call: "apply", weights };
  }

  private mend(engine: Engine): Due | null {
    const { serving } = this;
    const { phase, loading, ready } = engine;
    const resumed = loading ?? serving;
    if (phase === "resuming") return resumed ? { call: "resume", weights: resumed } : null;
    if (!serving || engine.serves(serving)) return null;
    const weights = (phase === "clearing" || phase === "verifying" ? loading : null) ?? serving;
    const calls = { clearing: "clear", verifying: "verify", paused: "apply", unknown: "verify" };
    const call = calls[phase as keyof typeof calls] ?? (ready ? "pause" : "prepare");
    return { call: call as WeightsCall, weights };
  }

  /** Notes how an engine is from now on. */
  private record(id: number, { engine, spans }: Track, now: number): void {
    goOn(spans, this.look(id, engine), now);
  }

  private look(id: number, engine: Engine): Look {
    const { update, serving } = this;
    const takesPart = update?.workers.has(id) ?? false;
    const wanted = engine.loading ?? (takesPart ? update?.row.weights : serving);
    const version = `version ${wanted?.version ?? "?"}`;
    const { call, held } = engine;
    if (call && (takesPart || call !== "prepare"))
      return { state: STATE_OF[call], label: `${WORDS[call]} ${version}` };
    if (takesPart && engine.phase === "resuming")
      return { state: "awaiting", label: `has loaded ${version} and waits for the others` };
    const isRolled = update?.row.rolling && engine.serves(update.row.weights);
    if (engine.phase === "held" && (takesPart || isRolled || engine.serves(serving)))
      return { state: "held", label: heldText(held), token: this.input.tokenOf(held) };
    const cause = engine.cause ?? update?.row.behind.get(id) ?? `it has ${heldText(held)}`;
    return { state: "fenced", label: cause };
  }
}

/** Whether an engine has proven the version, and has to generate again. */
function isLoaded(engine: Engine, weights: WeightsView): boolean {
  return engine.call === null && engine.phase === "resuming" && isSame(engine.loading, weights);
}

interface Due {
  call: WeightsCall;
  weights: WeightsView;
}

export interface EventBody {
  weights: WeightsView;
  plan?: { quorum?: number; ready_s?: number; rolling?: boolean };
  worker: number;
  answer: CallAnswer;
  /** Of a trainer's call. */
  lineage?: number;
  call: TrainerCall;
}

export const WORDS: Record<WeightsCall, string> = {
  prepare: "is asked about",
  pause: "is paused for",
  apply: "loads",
  verify: "proves",
  clear: "clears caches for",
  resume: "resumes with",
};

export function heldText(held: WeightsView | null): string {
  return held ? `version ${held.version}` : "earlier weights";
}

export type Look = Pick<Span, "state" | "label" | "token">;

/** An engine looks like this from now on. */
export function goOn(spans: Span[], next: Look, now: number): void {
  const last = spans.at(-1);
  if (last?.open && last.state === next.state && last.label === next.label) return;
  endSpan(spans, now);
  spans.push({ ...next, from: now, to: now, open: true });
}

/** Ends spans that are under way with the present. */
export function closeSpans(engines: Map<number, Span[]>, now: number): void {
  for (const spans of engines.values()) {
    const last = spans.at(-1);
    if (last?.open) last.to = Math.max(last.from, now);
  }
}

/** Ends the span that is under way; one that took no time is left out. */
export function endSpan(spans: Span[], now: number): void {
  const last = spans.at(-1);
  if (!last?.open) return;
  last.to = now;
  last.open = false;
  if (last.to <= last.from) spans.pop();
}
