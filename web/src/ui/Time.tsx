// A moment: how long ago or ahead, and on hover exactly when.
import { ago, clockTime, duration, fullTime, preciseTime } from "../format/time";
import { journalNow } from "../live/clock";
import { useTick } from "../live/hooks";

interface Props {
  us: number;
  /** The clock: that of the journal, or the wall clock. */
  clock?: "journal" | "wall";
  /** Show the time of day instead of how long ago, optionally with milliseconds. */
  exact?: boolean | "ms";
  /** It may lie ahead; otherwise a future time is shown as now, because clocks differ. */
  ahead?: boolean;
}

export function Time({ us, clock = "journal", exact = false, ahead = false }: Props) {
  return (
    <time dateTime={isoOf(us)} title={fullTime(us)} className="nowrap">
      {exact === "ms" ? (
        preciseTime(us)
      ) : exact ? (
        clockTime(us)
      ) : (
        <Ago us={us} clock={clock} ahead={ahead} />
      )}
    </time>
  );
}

function Ago({ us, clock, ahead }: { us: number; clock: "journal" | "wall"; ahead: boolean }) {
  useTick();
  const now = clock === "journal" ? journalNow() : Date.now() * 1000;
  return ago(ahead ? now - us : Math.max(0, now - us));
}

/** The time since a moment, counting on. */
export function Since({ us }: { us: number }) {
  useTick();
  return <span title={fullTime(us)}>{duration(Math.max(0, journalNow() - us))}</span>;
}

function isoOf(us: number): string {
  const date = new Date(us / 1000);
  return Number.isNaN(date.getTime()) ? "" : date.toISOString();
}
