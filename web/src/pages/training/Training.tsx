// Training jobs: how far each is, and who waits for whom.
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate } from "@tanstack/react-router";
import { type TrainingJob, type TrainingWait, trainingJobs } from "../../api/training";
import { count, plural } from "../../format/number";
import { visibleText } from "../../format/text";
import { rewardText } from "../../model/training";
import { Command, Empty, Failure, Loading, PageHead, Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { Text } from "../../ui/Text";

export function Training() {
  const { data, error, refetch } = useQuery(trainingJobs);
  const jobs = data?.jobs ?? [];
  return (
    <div className="page">
      <PageHead title="Training" note={data ? plural(jobs.length, "job") : undefined} />
      {data && jobs.length > 0 ? (
        <Jobs jobs={jobs} />
      ) : data ? (
        <NoJobs />
      ) : error ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : (
        <Loading rows={6} />
      )}
    </div>
  );
}

function NoJobs() {
  return (
    <Empty icon="training" title="No training jobs yet">
      <p>
        treadle keeps a training run's samples, rewards and batches on record, so that trainer and
        rollouts can be killed and started again. Try it with a trainer that learns, from a
        checkout; docs/training.md has the calls.
      </p>
      <Command>python -m treadle_rl.examples.bandit</Command>
    </Empty>
  );
}

function Jobs({ jobs }: { jobs: TrainingJob[] }) {
  return (
    <Panel title="Jobs" note="queued, running and ready are groups that are in no batch" flush>
      {/* biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways */}
      <div className="plain-scroll" tabIndex={0}>
        <table className="plain">
          <thead>
            <tr>
              <th>Job</th>
              <th>Who waits</th>
              <th className="num">Next batch</th>
              <th className="num">Version</th>
              <th className="num wide-only">Checkpoint</th>
              <th className="num wide-only">Queued</th>
              <th className="num wide-only">Running</th>
              <th className="num wide-only">Ready</th>
              <th className="num wide-only">Held programs</th>
              <th className="num wide-only">Members served</th>
              <th className="num">Mean reward</th>
              <th className="num wide-only">Largest lag</th>
            </tr>
          </thead>
          <tbody>
            {jobs.map((job) => (
              <Row key={job.job} job={job} />
            ))}
          </tbody>
        </table>
      </div>
    </Panel>
  );
}

function Row({ job: row }: { job: TrainingJob }) {
  const navigate = useNavigate();
  const params = { job: row.job };
  return (
    <tr
      className="row-link"
      onClick={() => void navigate({ to: "/training/$job", params, search: {} })}
    >
      <td>
        <Link
          to="/training/$job"
          params={params}
          search={{}}
          onClick={(event) => event.stopPropagation()}
        >
          <Text value={row.job} max={60} />
        </Link>
      </td>
      <td>
        <WhoWaits wait={row.waits[0]} />
      </td>
      <td className="num">{count(row.next_batch)}</td>
      <td className="num">{count(row.version)}</td>
      <td className="num wide-only">{count(row.checkpoint)}</td>
      <td className="num wide-only">{count(row.queued)}</td>
      <td className="num wide-only">{count(row.running)}</td>
      <td className="num wide-only">{count(row.ready)}</td>
      <td className="num wide-only">{count(row.held)}</td>
      <td className="num wide-only">{count(row.account.served.members)}</td>
      <td className="num">{rewardText(row.account.served.reward_mean)}</td>
      <td className="num wide-only nowrap">
        {count(row.account.lag)} <span className="dim">of {count(row.settings.lag_max)}</span>
      </td>
    </tr>
  );
}

function WhoWaits({ wait }: { wait: TrainingWait | undefined }) {
  if (!wait) return <span className="dim">nobody</span>;
  return (
    <span title={visibleText(wait.message, 600)} className="nowrap">
      <Badge>
        {wait.who} for {wait.waits_for}
      </Badge>
    </span>
  );
}
