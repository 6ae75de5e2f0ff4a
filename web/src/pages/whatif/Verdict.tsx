// Which sets won by what, and the way to try one of them.
import type { WhatIfReport } from "../../api/types";
import { Text } from "../../ui/Text";
import { CanarySet } from "./CanarySet";
import { type Winner, winnersOf } from "./winners";

export function Verdict({ report, job }: { report: WhatIfReport; job: string }) {
  const [first] = report.sets;
  if (!first || report.sets.length < 2) return null;
  const winners = winnersOf(report);
  return (
    <div className="verdict">
      <div>
        {winners.map((winner) => (
          <Won key={winner.set.name} winner={winner} first={first.name} />
        ))}
        {winners.length > 0 ? null : report.seeds < 2 ? (
          <p>One seed does not tell a gain from chance: run at least two.</p>
        ) : (
          <p>
            No set is better than <Text value={first.name} max={80} /> beyond chance.
          </p>
        )}
      </div>
      <CanarySet
        report={report}
        job={job}
        best={winners.find(({ set }) => set !== first)?.set.name}
      />
    </div>
  );
}

function Won({ winner: { set, measures }, first }: { winner: Winner; first: string }) {
  const ratio = set.against_first?.makespan_ratio;
  return (
    <p>
      <strong>
        <Text value={set.name} max={80} />
      </strong>{" "}
      is best by {measures.map(({ label }) => label).join("; ")}.{" "}
      {typeof ratio?.half_width === "number" ? (
        <span className="dim">
          It ends the work in {(ratio.mean * 100).toFixed(0)} % (±{" "}
          {(ratio.half_width * 100).toFixed(0)}) of the time of <Text value={first} max={80} />.
        </span>
      ) : null}
    </p>
  );
}
