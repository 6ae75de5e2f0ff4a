// What one engine holds, found again from how its calls ended, as the core's machine of weights
// finds it (host/core/weights/src/holding.rs): the journal has answers, and not which call each is of.
import type { WeightsView } from "../api/types";
import type { State } from "./states";

export type WeightsCall = "prepare" | "pause" | "apply" | "verify" | "clear" | "resume";
export type WeightsPhase =
  | "held"
  | "paused"
  | "verifying"
  | "clearing"
  | "resuming"
  | "torn"
  | "unknown";

/** What an engine does during each call. */
export const STATE_OF: Record<WeightsCall, State> = {
  prepare: "preparing",
  pause: "pausing",
  apply: "loading",
  verify: "verifying",
  clear: "clearing",
  resume: "resuming",
};

interface Checksum {
  layout: string;
  value: string;
}

/** How a call ended. */
export type CallAnswer =
  | "done"
  | { reports: { name: string | null; checksum: Checksum | null; whole: boolean } }
  | { refused: { cause: string } }
  | { failed: { cause: string } };

/** A trainer's call to an engine: a word, or a word with what belongs to it. */
export type TrainerCall =
  | "join"
  | "begin"
  | "begin_own"
  | "resume"
  | { pause: { own: boolean } }
  | { part: { name: string | null } }
  | { end: { name: string | null } }
  | { load: { name: string | null } };

/** Checksums of one version, by layout. */
export type Checksums = Map<string, string>;

const TRIES_MAX = 3;
const BACKOFF_US = 5e6;
const BACKOFF_MAX_US = 300e6;
const REPEAT_US = 1e6;
const DIFFERS = "its checksum differs from that of other engines";

export function isSame(a: WeightsView | null, b: WeightsView | null): boolean {
  return a?.name === b?.name && a?.version === b?.version && a?.lineage === b?.lineage;
}

export class Engine {
  phase: WeightsPhase = "held";
  held: WeightsView | null = null;
  loading: WeightsView | null = null;
  ready = false;
  cause: string | null = null;
  checksum: Checksum | null = null;
  confirmed = false;
  /** The call that is under way. */
  call: WeightsCall | null = null;
  /** It is not called before then. */
  restsUntil = 0;
  protected sound = true;
  private failures = 0;

  serves(weights: WeightsView | null): boolean {
    return this.phase === "held" && isSame(this.held, weights);
  }

  begin(call: WeightsCall, weights: WeightsView): void {
    this.call = call;
    if (call === "apply") {
      this.confirmed = false;
      this.checksum = null;
    }
    if (call === "apply" || (call === "verify" && this.phase === "unknown")) this.loading = weights;
  }

  doubt(cause: string, now: number): void {
    Object.assign(this, { phase: "unknown", cause, loading: null, checksum: null, call: null });
    Object.assign(this, { confirmed: false, sound: false, ready: false, failures: 0 });
    this.restsUntil = now;
  }

  tear(now: number, cause = DIFFERS): false {
    this.doubt(cause, now);
    this.phase = "torn";
    return false;
  }

  /** A call ended. Returns whether the engine still takes part in the update. */
  ended(call: WeightsCall, answer: CallAnswer, known: Checksums, now: number): boolean {
    this.call = null;
    if (answer === "done") return this.done(call);
    if ("reports" in answer) return this.reported(answer.reports, known, now);
    const isSure = "refused" in answer;
    const { cause } = isSure ? answer.refused : answer.failed;
    return this.failed(call, isSure, `${call} failed: ${cause}`, now);
  }

  private done(call: WeightsCall): boolean {
    if (call === "prepare") Object.assign(this, { ready: true, failures: 0 });
    if (call === "pause") this.phase = "paused";
    if (call === "apply")
      Object.assign(this, { sound: false, confirmed: true, phase: "verifying" });
    if (call === "clear") Object.assign(this, { failures: 0, phase: "resuming" });
    if (call === "resume") {
      Object.assign(this, { phase: "held", held: this.loading, loading: null, cause: null });
      Object.assign(this, { ready: false, confirmed: false, failures: 0, sound: true });
    }
    return true;
  }

  private failed(call: WeightsCall, isSure: boolean, cause: string, now: number): boolean {
    if (call === "verify" || call === "clear" || call === "resume") return this.repeat(cause, now);
    if ((call === "pause" || (call === "apply" && isSure)) && this.sound) {
      Object.assign(this, { loading: this.held, phase: "resuming" });
      this.rest(cause, now);
      this.restsUntil = now;
      return false;
    }
    if (call === "apply" && !isSure) {
      Object.assign(this, { sound: false, cause, phase: "verifying" });
      return true;
    }
    if (call === "apply") this.phase = "torn";
    return this.rest(cause, now);
  }

  private rest(cause: string, now: number): false {
    this.restsUntil = now + Math.min(BACKOFF_US * 2 ** Math.min(this.failures, 16), BACKOFF_MAX_US);
    this.failures += 1;
    Object.assign(this, { cause, ready: false });
    return false;
  }

  private repeat(cause: string, now: number): boolean {
    this.failures += 1;
    this.restsUntil = now + REPEAT_US;
    if (this.failures < TRIES_MAX) return true;
    this.doubt(cause, now);
    return this.rest(cause, now);
  }

  private reported(
    { name, checksum, whole }: { name: string | null; checksum: Checksum | null; whole: boolean },
    known: Checksums,
    now: number,
  ): boolean {
    this.failures = 0;
    if (whole && name !== null) this.confirmed = true;
    const wanted = this.loading;
    if (!wanted) return true;
    if (name !== null && name !== wanted.name)
      return this.notProven(`it reports version \`${name}\` instead of \`${wanted.name}\``, now);
    const expected = checksum ? known.get(checksum.layout) : undefined;
    if (checksum && expected !== undefined && checksum.value !== expected)
      return this.notProven(DIFFERS, now);
    const isAsked = this.phase !== "verifying";
    if (!this.confirmed && (!checksum || (isAsked && expected === undefined)))
      return this.notProven(this.cause ?? "no checksum proves what it has", now);
    Object.assign(this, { checksum, phase: "clearing" });
    return true;
  }

  private notProven(cause: string, now: number): false {
    if (this.phase === "verifying") return this.tear(now, cause);
    Object.assign(this, { cause, loading: null, confirmed: false, phase: "torn" });
    return false;
  }
}

/** Engines whose checksums differ from what most have, and what most have. */
export function compare(engines: Engine[]): { differing: Engine[]; agreed: Checksums } {
  const agreed: Checksums = new Map();
  const sure = engines.filter((engine) => engine.confirmed && engine.checksum !== null);
  for (const { checksum } of sure) {
    const alike = sure.filter((one) => one.checksum?.layout === checksum?.layout);
    const same = alike.filter((one) => one.checksum?.value === checksum?.value);
    if (checksum && same.length * 2 > alike.length) agreed.set(checksum.layout, checksum.value);
  }
  const differs = ({ checksum }: Engine) =>
    checksum !== null && agreed.get(checksum.layout) !== checksum.value;
  return { differing: engines.filter(differs), agreed };
}
