// The columns of lists of events.
import { Link } from "@tanstack/react-router";
import type { EventView } from "../../api/types";
import { visibleText } from "../../format/text";
import type { Column } from "../../ui/DataTable";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";

const SUMMARY_MAX = 240;

/** Fields that are long and say little; the details have them. */
const DETAILS = ["event", "program", "job", "prefix", "group", "text", "copy", "ask"];

/** What an event says beside its kind and program, on one line. */
function summaryOf(view: EventView): string {
  return Object.entries(view.event as Record<string, unknown>)
    .filter(([key, value]) => !DETAILS.includes(key) && value !== null && value !== false)
    .map(([key, value]) => `${key} ${typeof value === "object" ? JSON.stringify(value) : value}`)
    .join("  ");
}

export const eventColumns: Column<EventView>[] = [
  {
    id: "time",
    header: "Time",
    width: "92px",
    cell: (row) => (
      <span className="mono dim">
        <Time us={row.at_us} exact="ms" />
      </span>
    ),
  },
  {
    id: "kind",
    header: "Kind",
    width: "138px",
    cell: (row) => <span className={`kind ${toneOf(row.kind)}`}>{visibleText(row.kind)}</span>,
  },
  {
    id: "program",
    header: "Program",
    width: "minmax(120px, 1.2fr)",
    cell: (row) =>
      row.program ? (
        <Link to="/programs/$program" params={{ program: row.program }} tabIndex={-1}>
          <Text value={row.program} max={120} />
        </Link>
      ) : (
        <span className="dim">–</span>
      ),
  },
  {
    id: "job",
    header: "Job",
    width: "minmax(70px, 0.5fr)",
    wideOnly: true,
    cell: (row) => <Text value={row.job} max={60} />,
  },
  {
    id: "summary",
    header: "What it says",
    width: "minmax(200px, 3fr)",
    wideOnly: true,
    cell: (row) => (
      <span className="mono soft">
        <Text value={summaryOf(row)} max={SUMMARY_MAX} />
      </span>
    ),
  },
];

function toneOf(kind: string): string {
  if (/failed|lost|refused|cancelled|interrupted/.test(kind)) return "bad";
  if (/added|recovered|finished|released|loaded/.test(kind)) return "good";
  return "";
}
