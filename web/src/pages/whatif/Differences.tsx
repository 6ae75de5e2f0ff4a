// The first decisions that a set takes otherwise than the baseline.
import { Link } from "@tanstack/react-router";
import type { DecisionView, WhatIfDecision, WhatIfSet } from "../../api/types";
import { plural } from "../../format/number";
import { duration } from "../../format/time";
import { explain } from "../../model/explain";
import { Panel } from "../../ui/Panel";
import { Text } from "../../ui/Text";

interface Props {
  first: string;
  set: WhatIfSet;
  /** Whether the programs are on no page of the console: they are of a trace. */
  isTrace: boolean;
}

export function Differences({ first, set, isTrace }: Props) {
  const against = set.against_first;
  if (!against || against.differences.length === 0) return null;
  return (
    <Panel
      title={<Text value={`What ${set.name} decides otherwise`} max={120} />}
      note={`${plural(against.programs_decided_otherwise, "program")}; the first ones are shown`}
      flush
    >
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain differences">
          <thead>
            <tr>
              <th>Program</th>
              <th>
                <Text value={first} max={60} />
              </th>
              <th>
                <Text value={set.name} max={60} />
              </th>
            </tr>
          </thead>
          <tbody>
            {against.differences.map((one) => (
              <tr key={one.program}>
                <td className="nowrap">
                  {isTrace ? (
                    <Text value={one.program} max={80} />
                  ) : (
                    <Link to="/programs/$program" params={{ program: one.program }}>
                      <Text value={one.program} max={80} />
                    </Link>
                  )}
                  <div className="dim">after {plural(one.same_before, "equal decision")}</div>
                </td>
                <td>
                  <Decided decision={one.ours} />
                </td>
                <td>
                  <Decided decision={one.theirs} />
                </td>
              </tr>
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Decided({ decision }: { decision: WhatIfDecision | null | undefined }) {
  if (!decision) return <span className="dim">nothing at that point</span>;
  const view: DecisionView = {
    seq: 0,
    at_us: decision.at_s * 1e6,
    kind: decision.kind,
    policy: decision.policy,
    worker: `w${decision.worker}`,
    why: { ...decision, alternatives: [], waited: decision.waited_s * 1e6 } as unknown as Record<
      string,
      never
    >,
  };
  const words = explain(view, (worker) => `worker ${worker.slice(1)}`);
  return (
    <>
      <strong>{words.title}</strong> <span className="dim">+{duration(decision.at_s * 1e6)}</span>
      <div className="soft">
        {words.because} {words.figures}
      </div>
    </>
  );
}
