// The bias account: what became of members, and what batches leave out.
import type { BiasAccount } from "../../api/training";
import { count, short } from "../../format/number";
import { breakText } from "../../model/sample";
import { accountRows, domainRows, rewardText } from "../../model/training";
import { Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";

/** The account of each domain; nothing without domains. */
export function Domains({ account }: { account: BiasAccount }) {
  const rows = domainRows(account);
  if (rows.length === 0) return null;
  return (
    <Panel
      title="Bias account by domain"
      note="means of the members that finished, then of those in a batch"
      flush
    >
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain">
          <thead>
            <tr>
              <th>Domain</th>
              <th className="num">Begun</th>
              <th className="num">Finished</th>
              <th className="num">Served</th>
              <th className="num">Lost</th>
              <th className="num">Mean tokens</th>
              <th className="num">Mean reward</th>
            </tr>
          </thead>
          <tbody>
            {rows.map(({ domain, tokens, reward, ...row }) => (
              <tr key={domain}>
                <td>
                  <Text value={domain} max={64} />
                </td>
                <td className="num">{count(row.begun)}</td>
                <td className="num">{count(row.finished)}</td>
                <td className="num">{count(row.served)}</td>
                <td className="num">{count(row.lost)}</td>
                <td className="num nowrap">
                  {short(tokens.finished)} <span className="dim">/ {short(tokens.served)}</span>
                </td>
                <td className="num nowrap">
                  {rewardText(reward.finished)}{" "}
                  <span className="dim">/ {rewardText(reward.served)}</span>
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

export function Account({ account }: { account: BiasAccount }) {
  const { breaks, returned, never_served, surplus } = account;
  return (
    <Panel title="Bias account" note="if those that were lost differ, batches are biased" flush>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain">
          <thead>
            <tr>
              <th>What became of members</th>
              <th className="num">Members</th>
              <th className="num">Mean tokens</th>
              <th className="num">Mean turns</th>
              <th className="num">Mean reward</th>
            </tr>
          </thead>
          <tbody>
            {accountRows(account).map((row) => (
              <tr key={row.what}>
                <td>
                  <Text value={row.what} max={60} />
                </td>
                <td className="num">{count(row.members)}</td>
                <td className="num">{short(row.tokensMean)}</td>
                <td className="num">{short(row.turnsMean)}</td>
                <td className="num">{rewardText(row.rewardMean)}</td>
              </tr>
            ))}
            <Sum what="Groups that returned to the queue" value={returned} />
            <Sum what="Prompts that were never served" value={never_served} />
            <Sum what="Surplus programs" value={surplus} />
            {Object.entries(breaks).map(([kind, steps]) => (
              <Sum key={kind} what={`Breaks: ${kind}`} title={breakText(kind)} value={steps} />
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Sum({ what, value, title }: { what: string; value: number; title?: string }) {
  return (
    <tr title={title}>
      <td>
        <Text value={what} max={60} />
      </td>
      <td className="num">{count(value)}</td>
      <td colSpan={3} />
    </tr>
  );
}
