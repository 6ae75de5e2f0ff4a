// The updates of a job's weights: what each cost, and which engines it left behind.
import { count, plural } from "../../format/number";
import { duration } from "../../format/time";
import type { UpdateRow } from "../../model/weights";
import { Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";
import { Time } from "../../ui/Time";
import { Version } from "./Engines";

/** Updates that are listed. */
const SHOWN_MAX = 50;
/** Engines that are named in a row. */
const BEHIND_MAX = 4;

interface Props {
  rows: UpdateRow[];
  chosen: string | undefined;
  /** There are older ones that were not read. */
  more: boolean;
  onChoose: (key: string | undefined) => void;
}

export function Updates({ rows, chosen, more, onChoose }: Props) {
  const shown = rows.slice(0, SHOWN_MAX);
  const isCut = more || rows.length > shown.length;
  return (
    <Panel
      title="Updates"
      note={isCut ? `the newest ${count(shown.length)}` : "the newest first; a row shows its lanes"}
      flush={shown.length > 0}
    >
      {shown.length === 0 ? (
        <p className="soft">None is on record. The next one appears here as it begins.</p>
      ) : (
        // biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways
        <div className="plain-scroll" tabIndex={0}>
          <table className="plain" aria-label="Updates of weights">
            <thead>
              <tr>
                <th>Version</th>
                <th>Began</th>
                <th className="num">Took</th>
                <th className="num" title="The longest pause of an engine">
                  Paused at most
                </th>
                <th className="num wide-only" title="The pauses of all engines together">
                  Paused in all
                </th>
                <th className="num" title="How long no step began because of it">
                  Exposed
                </th>
                <th className="num">Engines</th>
                <th className="wide-cell">Left behind</th>
              </tr>
            </thead>
            <tbody>
              {shown.map((row) => (
                <Row
                  key={row.key}
                  row={row}
                  isChosen={row.key === chosen}
                  choose={() => onChoose(row.key === chosen ? undefined : row.key)}
                />
              ))}
            </tbody>
          </table>
        </div>
      )}
    </Panel>
  );
}

function Row({ row, isChosen, choose }: { row: UpdateRow; isChosen: boolean; choose: () => void }) {
  const { weights, stage, held } = row;
  return (
    <tr className="row-link" aria-current={isChosen ? "true" : undefined} onClick={choose}>
      <td className="nowrap">
        <button type="button" className="account-link" onClick={choose}>
          <Version weights={weights} />
        </button>
        {row.rolling ? <div className="dim">one engine after the other</div> : null}
        {row.driven ? <div className="dim">by its trainer</div> : null}
      </td>
      <td>{row.began === null ? <span className="dim">–</span> : <Time us={row.began} />}</td>
      <td className="num nowrap">
        {stage ? <Badge tone="accent">{stage}</Badge> : duration(row.tookUs)}
      </td>
      <td className="num nowrap">{duration(row.pausedMaxUs)}</td>
      <td className="num nowrap wide-only">{duration(row.pausedSumUs)}</td>
      <td className="num nowrap">{duration(row.exposedUs)}</td>
      <td className="num">
        {stage ? "–" : held > 0 ? count(held) : <Badge tone="bad">failed</Badge>}
      </td>
      <td>
        <Behind row={row} />
      </td>
    </tr>
  );
}

function Behind({ row: { behind } }: { row: UpdateRow }) {
  if (behind.length === 0) return <span className="dim">none</span>;
  return (
    <ul className="behind">
      {behind.slice(0, BEHIND_MAX).map(({ worker, cause }) => (
        <li key={worker}>
          worker {worker}: <Text value={cause} max={200} />
        </li>
      ))}
      {behind.length > BEHIND_MAX ? (
        <li className="dim">and {plural(behind.length - BEHIND_MAX, "more engine")}</li>
      ) : null}
    </ul>
  );
}
