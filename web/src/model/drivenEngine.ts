// An engine whose weights a trainer replaces through treadle's relay, as in
// host/core/weights/src/trainer_calls.rs.
import type { WeightsView } from "../api/types";
import {
  type CallAnswer,
  type Checksums,
  Engine,
  type TrainerCall,
  type WeightsCall,
} from "./weightsEngine";

export type Verb = "pause" | "join" | "begin" | "begin_own" | "part" | "end" | "load" | "resume";
/** How much of an engine's weights its trainer has replaced; `Extent` of the core says more. */
export type Extent = "nothing" | "open" | "own" | "parts" | "left" | "all";

/** What a call does, and the version's name if it has it. */
export function read(call: TrainerCall): { verb: Verb; name: string | null; own: boolean } {
  if (typeof call === "string") return { verb: call, name: null, own: false };
  const [verb, { name = null, own = false }] = Object.entries(call)[0] as [
    Verb,
    { name?: string | null; own?: boolean },
  ];
  return { verb, name, own };
}

/** What a trainer is doing to an engine. */
export interface Trainer {
  call: TrainerCall | null;
  extent: Extent;
  resumes: boolean;
  pausedByTreadle: boolean;
}

const IDLE: Trainer = { call: null, extent: "nothing", resumes: false, pausedByTreadle: false };

export class DrivenEngine extends Engine {
  trainer: Trainer | null = null;

  get isCalled(): boolean {
    return Boolean(this.trainer?.call);
  }

  /** Whether its trainer's calls may have changed the weights. */
  private get isTouched(): boolean {
    const { call, extent } = this.trainer ?? IDLE;
    const verb = call && read(call).verb;
    return extent !== "nothing" || (verb !== null && verb !== "pause" && verb !== "join");
  }

  called(call: TrainerCall, weights: WeightsView): void {
    const isWhole = this.sound && !this.isTouched;
    this.trainer ??= { ...IDLE };
    const { verb, own } = read(call);
    if (verb === "resume") {
      this.trainer.resumes = true;
      if (this.trainer.extent === "parts") this.trainer.extent = "all";
      if (this.phase !== "paused") return;
      if (isWhole) Object.assign(this, { loading: this.held, phase: "resuming" });
      else this.prove(weights);
      return;
    }
    if (verb === "pause") {
      Object.assign(this.trainer, { resumes: false, pausedByTreadle: own });
      if (isIn(this.trainer.extent, "own", "parts")) this.trainer.extent = "left";
    }
    this.trainer.call = call;
    Object.assign(this, { loading: null, call: null, ready: false, phase: "paused" });
  }

  /** A trainer's call ended. Returns whether the engine still takes part in the update. */
  answered(answer: CallAnswer, weights: WeightsView, now: number): boolean {
    const { trainer } = this;
    if (!trainer?.call) return true;
    const { verb, own } = read(trainer.call);
    trainer.call = null;
    const isRefused = typeof answer !== "string" && "refused" in answer;
    const failure = causeOf(answer);
    if (failure === null) return this.carriedOut(verb, weights);
    const cause = `a trainer's call failed: ${failure}`;
    const isWhole = this.sound && trainer.extent === "nothing";
    if (verb === "pause" && isWhole && (own || isRefused)) {
      trainer.resumes = true;
      Object.assign(this, { loading: this.held, cause, phase: "resuming" });
      return true;
    }
    if (verb === "pause" && !isRefused) {
      this.cause = cause;
      return true;
    }
    const changesNothing = isIn(trainer.extent, "nothing", "open", "left") && verb !== "end";
    return isRefused && changesNothing && verb !== "pause" ? true : this.tear(now, cause);
  }

  get isJoining(): boolean {
    const call = this.trainer?.call;
    return call === "join";
  }

  joins(): void {
    this.trainer = { ...(this.trainer ?? IDLE), call: "join" };
  }

  /** It joined a process group, or may wait there. Returns whether it still takes part. */
  joined(answer: CallAnswer, now: number): boolean {
    const rest = { ...(this.trainer ?? IDLE), call: null };
    const isIdle = rest.extent === "nothing" && !rest.resumes && !rest.pausedByTreadle;
    this.trainer = isIdle ? null : rest;
    if (typeof answer === "string" || !("failed" in answer)) return true;
    const cause = `it may wait for a process group for ever: ${answer.failed.cause}`;
    if (this.phase !== "torn") this.doubt(cause, now);
    return false;
  }

  /** A trainer's call ended after its update was over for the engine. */
  outlived(now: number): void {
    if (!this.isCalled) return;
    this.trainer = null;
    this.tear(now, this.cause ?? "its update ended before a trainer's call did");
  }

  /** It did not answer. Whether it was known what it had until then. */
  lost(now: number, isFirst: boolean): boolean {
    const isFresh = this.phase === "held" && this.held === null && isFirst;
    if (isFresh || this.phase === "torn" || this.phase === "unknown") return false;
    const cause = "it did not answer; it may be another process by now";
    if (this.isTouched) this.tear(now, cause);
    else this.doubt(cause, now);
    return true;
  }

  override doubt(cause: string, now: number): void {
    super.doubt(cause, now);
    const call = this.trainer?.call;
    this.trainer = call ? { ...IDLE, call } : null;
  }

  override ended(call: WeightsCall, answer: CallAnswer, known: Checksums, now: number): boolean {
    const stays = super.ended(call, answer, known, now);
    if (call === "resume" && answer === "done") this.trainer = null;
    return stays;
  }

  private carriedOut(verb: Verb, weights: WeightsView): true {
    this.trainer ??= { ...IDLE };
    const { trainer } = this;
    if (verb === "pause" || verb === "resume") return true;
    if (verb === "begin") trainer.extent = "open";
    else if (verb === "begin_own") trainer.extent = "own";
    else if (verb !== "part") trainer.extent = "all";
    else if (!isIn(trainer.extent, "open", "own")) trainer.extent = "parts";
    if (verb === "end") this.prove(weights);
    this.sound = false;
    return true;
  }

  private prove(weights: WeightsView): void {
    this.loading = weights;
    Object.assign(this, { confirmed: true, checksum: null, phase: "verifying" });
  }
}

export function isIn(extent: Extent, ...list: Extent[]): boolean {
  return list.includes(extent);
}

function causeOf(answer: CallAnswer): string | null {
  if (typeof answer === "string" || "reports" in answer) return null;
  return "refused" in answer ? answer.refused.cause : answer.failed.cause;
}
