// Updates that a trainer drives through treadle's relay, found again from the journal in the order
// of host/core/weights/src/driven.rs: the trainer pauses and loads, and treadle has each engine
// prove what it has, clear its caches and generate again.
import type { EventView, WeightsView } from "../api/types";
import { DrivenEngine, isIn, read, type Trainer, type Verb } from "./drivenEngine";
import type { Span } from "./timeline";
import {
  type CallAnswer,
  type Checksums,
  compare,
  isSame,
  STATE_OF,
  type TrainerCall,
  type WeightsCall,
} from "./weightsEngine";
import {
  closeSpans,
  type EventBody,
  endSpan,
  goOn,
  heldText,
  type Look,
  type ReplayInput,
  type Track,
  type WeightsUpdate,
  WORDS,
} from "./weightsReplay";

interface Running {
  row: WeightsUpdate;
  workers: Set<number>;
  checksums: Checksums;
}

export class DrivenReplay {
  /** Also those of engines that were removed. */
  spans = new Map<number, Span[]>();
  updates: WeightsUpdate[] = [];
  private tracks = new Map<number, Track<DrivenEngine>>();
  private update: Running | null = null;
  private serving: WeightsView | null = null;
  private checksums: Checksums = new Map();

  constructor(private input: ReplayInput) {}

  take({ kind, at_us: now, seq, event }: EventView): void {
    const body = event as unknown as EventBody;
    if (kind === "weights_relayed") this.called(body, seq, now);
    // What engines had before the first call on record is not known.
    if (this.tracks.size === 0) return;
    if (kind === "weights_relay_ended") this.answered(body.worker, body.answer, now);
    if (kind === "weights_call_ended") this.callEnded(body, now);
    if (kind === "weights_released" || kind === "job_removed") this.release(now);
    if (kind === "rolled_back") this.goBack(now);
    if (kind === "worker_lost") this.lose(body.worker, now);
    if (kind === "worker_removed") this.remove(body.worker, now);
    if (kind === "daemon_restarted") this.restart(now);
    this.settle(now);
  }

  close(): void {
    closeSpans(this.spans, this.input.now);
  }

  private track(id: number): Track<DrivenEngine> {
    const known = this.tracks.get(id);
    if (known) return known;
    const spans = this.spans.get(id) ?? [];
    const track = { engine: new DrivenEngine(), spans, pausedAt: null };
    this.tracks.set(id, track);
    this.spans.set(id, spans);
    return track;
  }

  private engines(ids: Iterable<number>): DrivenEngine[] {
    return [...ids].flatMap((id) => this.tracks.get(id)?.engine ?? []);
  }

  /** The version that a trainer means by a name; without one it is the next. */
  private named(lineage: number, name: string): WeightsView {
    const serving = this.serving?.lineage === lineage ? this.serving : null;
    if (serving && name !== "" && serving.name === name) return serving;
    const number = /^\+?\d+$/.test(name) ? Number(name) : null;
    const isNew = number !== null && (serving === null || number > serving.version);
    const version = isNew ? number : (serving?.version ?? 0) + 1;
    return { lineage, version, name, folder: "" };
  }

  private called({ worker, call, lineage = 0 }: EventBody, seq: number, now: number): void {
    const { verb, name } = read(call);
    for (const id of this.input.workers) this.track(id);
    const { engine } = this.track(worker);
    if (verb === "join") {
      engine.joins();
      return;
    }
    if (verb === "resume" && engine.phase === "held") return;
    if (this.update && this.beginsAnew(this.update, worker, verb, name)) this.endLeft(now);
    this.update ??= this.begin(this.named(lineage, ""), seq, now);
    if (name !== null) this.nameVersion(this.update, this.named(lineage, name));
    const { row, workers } = this.update;
    workers.add(worker);
    row.behind.delete(worker);
    engine.called(call, row.weights);
  }

  private begin(weights: WeightsView, seq: number, now: number): Running {
    const row: WeightsUpdate = {
      ...{ seq, weights, rolling: false, began: now, fenced: now, ended: null },
      ...{ stage: "driven", held: 0, behind: new Map(), paused: new Map() },
    };
    this.updates.push(row);
    return { row, workers: new Set(), checksums: new Map() };
  }

  /** Whether a call of a trainer that never pauses begins another update. */
  private beginsAnew(
    { row, workers }: Running,
    worker: number,
    verb: Verb,
    name: string | null,
  ): boolean {
    const isFirst = verb === "begin" || verb === "load" || (verb === "part" && name !== null);
    if (!isFirst || !workers.has(worker) || row.weights.name === (name ?? "")) return false;
    const own = this.engines(workers);
    const rest = own.filter((engine) => !engine.serves(row.weights));
    const isLeft = ({ phase, trainer, isCalled }: DrivenEngine) =>
      phase === "held" ||
      (phase === "paused" && trainer !== null && !isCalled && trainer.pausedByTreadle);
    return rest.length < own.length && rest.every(isLeft);
  }

  private endLeft(now: number): void {
    if (!this.update) return;
    const { row, workers } = this.update;
    const cause = `its trainer left the update to version \`${row.weights.name}\` unfinished`;
    for (const id of [...workers]) {
      const { engine } = this.track(id);
      if (engine.serves(row.weights)) continue;
      if (engine.phase !== "held") engine.cause = cause;
      this.leaveBehind(id, cause);
    }
    this.end(now);
  }

  private nameVersion(update: Running, weights: WeightsView): void {
    if (isSame(update.row.weights, weights)) return;
    update.checksums = new Map(isSame(this.serving, weights) ? this.checksums : []);
    update.row.weights = weights;
  }

  /** Trainers need not name versions: then it is what the engines report. */
  private adoptName(name: string): void {
    const row = this.update?.row;
    if (row?.weights.name !== "") return;
    const [before, after] = [row.weights, { ...row.weights, name }];
    row.weights = after;
    for (const { engine } of this.tracks.values()) {
      if (isSame(engine.loading, before)) engine.loading = after;
      if (isSame(engine.held, before)) engine.held = after;
    }
  }

  private answered(worker: number, answer: CallAnswer, now: number): void {
    const track = this.track(worker);
    const { engine } = track;
    if (engine.isJoining) {
      if (!engine.joined(answer, now)) this.leaveBehind(worker, engine.cause ?? "");
      return;
    }
    const ended = engine.trainer?.call;
    if (!this.update?.workers.has(worker)) {
      engine.outlived(now);
      return;
    }
    if (ended && read(ended).verb === "pause" && answer === "done") track.pausedAt ??= now;
    if (!engine.answered(answer, this.update.row.weights, now))
      this.leaveBehind(worker, engine.cause ?? "");
  }

  private callEnded({ worker, answer }: EventBody, now: number): void {
    const track = this.track(worker);
    const { engine } = track;
    if (engine.isCalled) return;
    const reports = typeof answer !== "string" && "reports" in answer ? answer.reports : null;
    // Nothing was due: an answer to a step must have shown that it has another version.
    if (engine.call === null && reports && this.serving && engine.serves(this.serving)) {
      engine.doubt("an answer named another version, or it was replaced", now);
      this.leaveBehind(worker, engine.cause ?? "");
      engine.begin("verify", this.serving);
    }
    // One that rested is called again without an event.
    const due = engine.call === null ? this.due(engine, worker) : null;
    if (due) engine.begin(due.call, due.weights);
    const { call } = engine;
    if (!call || (reports && call !== "verify")) return;
    if (reports?.name) this.adoptName(reports.name);
    const { update } = this;
    const isOwn = update !== null && isSame(engine.loading, update.row.weights);
    // Only treadle's own loads take the old name away before they begin.
    const believed = reports ? { reports: { ...reports, whole: false } } : answer;
    const stays = engine.ended(call, believed, isOwn ? update.checksums : this.checksums, now);
    if (answer === "done" && call === "resume" && track.pausedAt !== null) {
      if (update?.workers.has(worker)) update.row.paused.set(worker, now - track.pausedAt);
      track.pausedAt = null;
    }
    if (!stays) this.leaveBehind(worker, engine.cause ?? "");
  }

  private leaveBehind(worker: number, cause: string): void {
    if (this.update?.workers.delete(worker)) this.update.row.behind.set(worker, cause);
  }

  private lose(worker: number, now: number): void {
    const isLost = this.tracks.get(worker)?.engine.lost(now, this.serving === null);
    if (isLost) this.leaveBehind(worker, "it was lost during the update");
  }

  private remove(worker: number, now: number): void {
    const track = this.tracks.get(worker);
    if (!track) return;
    this.leaveBehind(worker, "it was removed");
    endSpan(track.spans, now);
    this.tracks.delete(worker);
  }

  private restart(now: number): void {
    const answer = { failed: { cause: "the daemon restarted before the engine answered" } };
    for (const [worker, { engine }] of this.tracks) {
      if (engine.isCalled) this.answered(worker, answer, now);
      else if (engine.call) this.callEnded({ worker, answer } as EventBody, now);
    }
  }

  private goBack(now: number): void {
    if (this.update) this.endRow(this.update.row, now);
    this.update = null;
    this.serving = null;
    for (const { engine } of this.tracks.values())
      engine.doubt("the run went back to a checkpoint; load its version", now);
  }

  private release(now: number): void {
    if (this.update) this.endRow(this.update.row, now);
    for (const { spans } of this.tracks.values()) endSpan(spans, now);
    this.tracks.clear();
    this.update = null;
  }

  private settle(now: number): void {
    if (this.update) this.drive(this.update, now);
    for (const [id, track] of this.tracks) {
      const { engine } = track;
      const isFree = engine.call === null && !engine.isCalled && engine.restsUntil <= now;
      const due = isFree ? this.due(engine, id) : null;
      if (due) engine.begin(due.call, due.weights);
      goOn(track.spans, this.look(id, engine), now);
    }
  }

  /** Takes the update as far as it can go without its trainer. */
  private drive(update: Running, now: number): void {
    const { row, workers } = update;
    const proves = (engine: DrivenEngine) =>
      engine.isCalled || engine.phase === "verifying" || engine.phase === "clearing";
    if (!this.engines(workers).some(proves)) {
      const isProven = ({ phase, loading }: DrivenEngine) =>
        phase === "resuming" && isSame(loading, row.weights);
      const { differing, agreed } = compare(this.engines(workers).filter(isProven));
      for (const [layout, value] of agreed) update.checksums.set(layout, value);
      for (const [id, { engine }] of this.tracks) {
        if (!differing.includes(engine)) continue;
        engine.tear(now);
        this.leaveBehind(id, engine.cause ?? "");
      }
    }
    if (!this.engines(workers).every(({ phase }) => phase === "held")) return;
    const served = this.engines(this.tracks.keys()).some((one) => one.serves(row.weights));
    if (!served && row.behind.size === 0) {
      // It paused them, and loaded nothing.
      this.updates = this.updates.filter((one) => one !== row);
      this.update = null;
    } else this.end(now);
  }

  private end(now: number): void {
    if (!this.update) return;
    const { row, checksums } = this.update;
    this.endRow(row, now);
    this.update = null;
    if (row.held === 0) return;
    this.serving = row.weights;
    this.checksums = checksums;
  }

  private endRow(row: WeightsUpdate, now: number): void {
    row.ended = now;
    row.held = this.engines(this.tracks.keys()).filter((one) => one.serves(row.weights)).length;
  }

  private due(
    engine: DrivenEngine,
    id: number,
  ): { call: WeightsCall; weights: WeightsView } | null {
    const { update, serving } = this;
    const { phase, loading, trainer, checksum } = engine;
    const calls: Record<string, WeightsCall> = { verifying: "verify", clearing: "clear" };
    if (!update) {
      if (phase === "resuming")
        return { call: "resume", weights: loading ?? serving ?? this.named(0, "") };
      const call = phase === "unknown" ? "verify" : calls[phase];
      const weights = phase === "unknown" ? serving : (loading ?? serving);
      return call && weights ? { call, weights } : null;
    }
    if (!update.workers.has(id)) return null;
    const { weights } = update.row;
    const isProven =
      !isSame(loading, weights) ||
      !checksum ||
      update.checksums.get(checksum.layout) === checksum.value;
    const resumes = phase === "resuming" && trainer?.resumes && isProven;
    const call = resumes ? "resume" : calls[phase];
    return call ? { call, weights: loading ?? weights } : null;
  }

  private look(id: number, engine: DrivenEngine): Look {
    const { serving } = this;
    const takesPart = this.update?.workers.has(id) ?? false;
    const wanted = engine.loading ?? (takesPart ? this.update?.row.weights : serving);
    const version = `version ${wanted?.version ?? "?"}`;
    const { call, held, phase, trainer } = engine;
    if (trainer?.call) return lookOfCall(trainer.call, trainer, version);
    if (call) return { state: STATE_OF[call], label: `${WORDS[call]} ${version}` };
    if (takesPart && phase === "paused") return lookPaused(trainer, version);
    if (takesPart && phase === "resuming") {
      const whom = trainer?.resumes ? "the others" : "its trainer";
      return { state: "awaiting", label: `has proven ${version} and waits for ${whom}` };
    }
    if (engine.serves(serving) || (this.update && engine.serves(this.update.row.weights)))
      return { state: "held", label: heldText(held), token: this.input.tokenOf(held) };
    const cause = engine.cause ?? this.update?.row.behind.get(id) ?? `it has ${heldText(held)}`;
    return { state: "fenced", label: cause };
  }
}

function lookOfCall(call: TrainerCall, { extent }: Trainer, version: string): Look {
  const { verb, own } = read(call);
  if (verb === "pause")
    return { state: "pausing", label: own ? "is paused by treadle" : "is paused by its trainer" };
  if (verb === "join") return { state: "awaiting", label: "joins a process group" };
  const inParts = verb.startsWith("begin") || isIn(extent, "open", "own", "parts");
  return inParts ? IN_PARTS : { state: "loading", label: `loads ${version}` };
}

/** Between a trainer's calls. */
function lookPaused(trainer: Trainer | null, version: string): Look {
  const extent = trainer?.extent ?? "nothing";
  if (isIn(extent, "open", "own", "parts")) return IN_PARTS;
  const half = extent === "left" ? "has parts of an update that its trainer left" : "is paused";
  const what = extent === "all" ? `has been sent ${version}` : half;
  return { state: "idle", label: `${what} and waits for its trainer` };
}

/** Parts come close on each other, and only the end of them may name the version. */
const IN_PARTS: Look = { state: "loading", label: "loads weights in parts" };
