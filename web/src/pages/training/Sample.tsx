// What a member sampled: its figures, its turns, and its tokens.
import { useQuery } from "@tanstack/react-query";
import { Link, useParams, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import { ApiError } from "../../api/client";
import { firstMessages, type MemberSteps, memberSteps } from "../../api/sample";
import { isGone } from "../../api/training";
import { count, plural } from "../../format/number";
import { sentence } from "../../format/text";
import { breakText, figuresOf, logprobsText, stepList, stepsBy } from "../../model/sample";
import { endText, rewardText } from "../../model/training";
import { Empty, Failure, Loading, PageHead, Panel, Stat } from "../../ui/Panel";
import { Text } from "../../ui/Text";
import { Unknown } from "./Job";
import { Tokens } from "./Tokens";
import { Turns } from "./Turns";

export function Sample() {
  const { job, program } = useParams({ from: "/training/$job/members/$program" });
  const { batch } = useSearch({ from: "/training/$job/members/$program" });
  const { data, error, refetch, isFetching } = useQuery(memberSteps(job, program, batch));
  if (isGone(error)) {
    return (
      <div className="page">
        <Unknown job={job} />
      </div>
    );
  }
  const again = () => void refetch();
  return (
    <div className="page">
      <nav aria-label="Breadcrumb" className="crumbs">
        <Link to="/training">Training</Link>
        <span aria-hidden="true">/</span>
        <Link to="/training/$job" params={{ job }} search={{}}>
          <Text value={job} max={60} />
        </Link>
      </nav>
      <PageHead
        title={<Text value={program} max={120} />}
        note={
          data ? (
            <>
              group <Text value={data.group} max={120} />
            </>
          ) : undefined
        }
      >
        {data && data.sample === null ? (
          <button type="button" className="button" onClick={again} disabled={isFetching}>
            Read again
          </button>
        ) : null}
        <ProgramLink program={program} />
      </PageHead>
      {data ? (
        <Known steps={data} />
      ) : error instanceof ApiError && error.code === "member_unknown" ? (
        <NoSteps error={error} />
      ) : error ? (
        <Failure error={error} retry={again} />
      ) : (
        <Loading rows={8} />
      )}
    </div>
  );
}

/** A link to the program's page, named by whether it has the messages. */
function ProgramLink({ program }: { program: string }) {
  const { data } = useQuery(firstMessages(program));
  if (!data) return null;
  const search = data.kept ? { tab: "steps", step: String(data.step) } : {};
  return (
    <Link to="/programs/$program" params={{ program }} search={search} className="button">
      {data.kept ? "Its messages" : "Its program"}
    </Link>
  );
}

function NoSteps({ error }: { error: ApiError }) {
  return (
    <Empty icon="training" title="No captured tokens">
      <p>
        <Text value={sentence(error.message)} max={600} />
      </p>
      <p>
        Tokens are captured of requests that treadle forwards for a job with <code>capture</code>{" "}
        set to <code>tokens</code>, and kept until the member's batch is released.
      </p>
    </Empty>
  );
}

function Known({ steps }: { steps: MemberSteps }) {
  const { context, trained, versions, mixed } = useMemo(() => figuresOf(steps), [steps]);
  const [oldest, newest] = [versions[0], versions.at(-1)];
  return (
    <>
      <dl className="stats">
        <Stat label="Reward" value={rewardText(steps.reward)} />
        <Stat
          label="End"
          value={steps.end ? endText(steps.end) : "–"}
          note={steps.incomplete ? <Text value={steps.incomplete} max={200} /> : undefined}
        />
        <Stat
          label="Tokens trained"
          value={count(trained)}
          note={`of ${count(context)} in context`}
        />
        <Stat label="Sequences" value={count(steps.sequences.length)} />
        <Stat label="Steps" value={count(steps.steps.length)} />
        <Stat label="Steps excluded" value={count(steps.excluded.length)} />
        <Stat label="Breaks" value={count(steps.breaks.length)} />
        <Stat
          label={oldest === newest ? "Version" : "Versions"}
          value={oldest === newest ? count(oldest) : `${count(oldest)} to ${count(newest)}`}
          note={mixed > 0 ? `${plural(mixed, "token")} mixed` : undefined}
        />
      </dl>
      <About steps={steps} />
      <Turns steps={steps} />
      <Tokens steps={steps} />
    </>
  );
}

/** The digest, and why steps are excluded or begin sequences. */
function About({ steps }: { steps: MemberSteps }) {
  const { sample, logprobs, excluded, breaks } = steps;
  const { mixed } = figuresOf(steps);
  const reasons = stepsBy(excluded.map(({ step, reason }) => [reason, step]));
  const kinds = stepsBy(breaks.map(({ step, kind }) => [kind, step]));
  return (
    <Panel title="Sample">
      <dl className="facts">
        <dt>Digest</dt>
        <dd className={sample ? "mono" : "soft"}>
          {sample ? <Text value={sample} /> : "None yet: it is computed when the member ends."}
        </dd>
        {logprobs ? (
          <>
            <dt>Log-probabilities</dt>
            <dd>
              <strong>
                <Text value={logprobs} max={40} />
              </strong>{" "}
              <span className="soft">{logprobsText(logprobs)}</span>
            </dd>
          </>
        ) : null}
        {mixed > 0 ? (
          <>
            <dt>Mixed versions</dt>
            <dd>
              Weights changed while {plural(mixed, "token")} were sampled, and the engine did not
              say where. <span className="soft">The older version counts for the lag.</span>
            </dd>
          </>
        ) : null}
        <dt>Excluded</dt>
        <dd>
          {reasons.length === 0 ? <span className="soft">No step.</span> : null}
          {reasons.map(([reason, numbers]) => (
            <p key={reason}>
              <Text value={sentence(reason)} /> <span className="dim">{stepList(numbers)}</span>
            </p>
          ))}
        </dd>
        <dt>Breaks</dt>
        <dd>
          {kinds.length === 0 ? (
            <span className="soft">None: each step continues an earlier one.</span>
          ) : (
            <p className="soft">
              A step that continues no earlier one begins a sequence. That costs training time, not
              correctness.
            </p>
          )}
          {kinds.map(([kind, numbers]) => (
            <p key={kind}>
              <strong>
                <Text value={kind} max={40} /> {count(numbers.length)}
              </strong>{" "}
              {breakText(kind)} <span className="dim">{stepList(numbers)}</span>
            </p>
          ))}
        </dd>
      </dl>
    </Panel>
  );
}
