// What members of each domain need, and which class of hardware suits them.
import type { TrainingProfile } from "../../api/training";
import { count, short } from "../../format/number";
import { sentence } from "../../format/text";
import { duration } from "../../format/time";
import { type ProfileRow, profileRows } from "../../model/training";
import { Icon } from "../../ui/Icon";
import { Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";

export function Affinity({ profile }: { profile: TrainingProfile }) {
  const { rows, classes } = profileRows(profile);
  if (rows.length === 0) return null;
  return (
    <Panel
      title="What members of each domain need"
      note="means of the latest members that came to their end"
      flush
    >
      {profile.note ? (
        <p className="problem affinity-note" role="status">
          <Icon name="warning" />
          <span>
            <Text value={sentence(profile.note)} max={600} />
          </span>
        </p>
      ) : null}
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain" aria-label="What members of each domain need">
          <thead>
            <tr>
              <th>Domain</th>
              <th>Prefers</th>
              <th className="num">Members</th>
              <th className="num">Turns</th>
              <th className="num">Prefill tokens</th>
              <th className="num">Output tokens</th>
              {classes.map((name) => (
                <th
                  key={name}
                  className="num"
                  title="How long a member takes there by learnt speeds, without tools and waits"
                >
                  On <Text value={name} max={30} />
                </th>
              ))}
            </tr>
          </thead>
          <tbody>
            {rows.map((row) => (
              <Row key={row.domain} row={row} classes={classes} />
            ))}
          </tbody>
        </table>
      </div>
      {classes.length < 2 ? (
        <p className="field-note table-note">
          Times on each class of hardware come once the speeds of engines with a class are learnt.
        </p>
      ) : null}
    </Panel>
  );
}

function Row({ row, classes }: { row: ProfileRow; classes: string[] }) {
  return (
    <tr>
      <td>
        <Text value={row.domain} max={64} />
      </td>
      <td>
        {row.class ? <Text value={row.class} max={30} /> : <span className="dim">any class</span>}
        {row.proposed ? (
          <div className="dim">
            <Text value={row.proposed} max={30} /> if it is chosen again
          </div>
        ) : null}
      </td>
      <td className="num">{count(row.members)}</td>
      <td className="num">{short(row.turns)}</td>
      <td className="num">{short(row.prefill_tokens)}</td>
      <td className="num">{short(row.output_tokens)}</td>
      {classes.map((name) => {
        const seconds = row.seconds[name];
        return (
          <td key={name} className="num nowrap">
            {seconds === undefined ? "–" : duration(seconds * 1e6)}
          </td>
        );
      })}
    </tr>
  );
}
