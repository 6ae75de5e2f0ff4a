// What the checks of an upload found.
import type { CheckFailure, CheckReport } from "../../api/types";
import { count } from "../../format/number";
import { CHECKS, verdictsOf } from "../../model/checks";
import { Icon } from "../../ui/Icon";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";

const MARKS = {
  passed: { icon: "check", tone: "good" },
  failed: { icon: "close", tone: "bad" },
  "not reached": { icon: "more", tone: "plain" },
} as const;

export function CheckList({
  report,
  refusal,
}: {
  report: CheckReport | null;
  refusal: CheckFailure | null;
}) {
  const verdicts = verdictsOf(refusal?.code ?? null);
  return (
    <div className="form">
      <ol className="checks" aria-label="Checks">
        {CHECKS.map((check, at) => {
          const verdict = verdicts[at] ?? "not reached";
          return (
            <li key={check.title} className={MARKS[verdict].tone}>
              <Icon name={MARKS[verdict].icon} />
              <div>
                <strong>{check.title}</strong> <span className="dim">{check.about}</span>
                {verdict === "failed" && refusal ? <Reason refusal={refusal} /> : null}
              </div>
              <span className="dim">{verdict}</span>
            </li>
          );
        })}
      </ol>
      {refusal && !verdicts.includes("failed") ? <Reason refusal={refusal} /> : null}
      {report ? <Found report={report} /> : null}
    </div>
  );
}

function Reason({ refusal }: { refusal: CheckFailure }) {
  return (
    <div className="reason" role="alert">
      <p>
        <Badge tone="bad">
          <Text value={refusal.code} max={40} />
        </Badge>{" "}
        <Text value={refusal.what} max={500} />
        {refusal.where ? (
          <span className="dim">
            {" "}
            at <Text value={refusal.where} max={200} />
          </span>
        ) : null}
      </p>
      <p>
        To mend it: <Text value={refusal.remedy} max={500} />.
      </p>
    </div>
  );
}

function Found({ report }: { report: CheckReport }) {
  const slowest = report.smoke.reduce((most, one) => Math.max(most, one.best_ns), 0);
  return (
    <dl className="facts">
      <dt>Policy</dt>
      <dd>
        <strong>
          <Text value={`${report.name}@${report.version}`} max={100} />
        </strong>{" "}
        for {report.world}
      </dd>
      <dt>What it does</dt>
      <dd>
        <Text value={report.summary} max={300} />
      </dd>
      <dt>Answers</dt>
      <dd className="mono">
        <Text value={report.functions.join(", ")} max={300} />
      </dd>
      <dt>Extra columns</dt>
      <dd className="mono">
        <Text value={report.columns.join(", ") || "none"} max={300} />
      </dd>
      <dt>Compiled in</dt>
      <dd>{count(report.compile_ms)} ms</dd>
      <dt>Slowest trial call</dt>
      <dd>{(slowest / 1000).toFixed(1)} µs</dd>
    </dl>
  );
}
