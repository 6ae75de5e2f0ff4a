// One training job: how far it is, who waits, what it left out, its groups and its batches.
import { useQuery } from "@tanstack/react-query";
import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { isGone, type TrainingJob, trainingJob } from "../../api/training";
import { jobWeights } from "../../api/weights";
import { count, plural } from "../../format/number";
import { sentence } from "../../format/text";
import { rewardText } from "../../model/training";
import { Icon } from "../../ui/Icon";
import { Empty, Failure, Loading, PageHead, Panel, Stat } from "../../ui/Panel";
import { Tabs } from "../../ui/Tabs";
import { Text } from "../../ui/Text";
import { Account, Domains } from "./Account";
import { Affinity } from "./Affinity";
import { Batches } from "./Batches";
import { Groups } from "./Groups";
import { Weights } from "./Weights";

export function Job() {
  const { job } = useParams({ from: "/training/$job" });
  const { data, error, refetch } = useQuery(trainingJob(job));
  if (data && !isGone(error)) return <Known job={data} />;
  return (
    <div className="page">
      {isGone(error) ? (
        <Undeclared job={job} />
      ) : error ? (
        <Failure error={error} retry={() => void refetch()} />
      ) : (
        <Loading rows={8} />
      )}
    </div>
  );
}

/** A trainer may update engines for a job that it never declares. */
function Undeclared({ job }: { job: string }) {
  const { data: weights, isPending } = useQuery(jobWeights(job));
  if (isPending) return <Loading rows={4} />;
  if (!weights) return <Unknown job={job} />;
  return (
    <>
      <PageHead
        title={<Text value={job} max={120} />}
        note="It is not declared as a training job: only the weights of its engines are known."
      />
      <Weights job={{ job }} />
    </>
  );
}

export function Unknown({ job }: { job: string }) {
  return (
    <>
      <PageHead title={<Text value={job} max={120} />} />
      <Empty icon="search" title="No training job of this name">
        <p>It is not declared. It may have been forgotten, or belong to another tenant.</p>
        <Link to="/training" className="button">
          All training jobs
        </Link>
      </Empty>
    </>
  );
}

function Known({ job }: { job: TrainingJob }) {
  const { model } = job.settings;
  const { tab } = useSearch({ from: "/training/$job" });
  const navigate = useNavigate({ from: "/training/$job" });
  return (
    <div className="page">
      <nav aria-label="Breadcrumb" className="crumbs">
        <Link to="/training">Training</Link>
      </nav>
      <PageHead
        title={<Text value={job.job} max={120} />}
        note={model ? <Text value={model} max={120} /> : undefined}
      >
        <Link to="/programs" search={{ job: job.job }} className="button">
          Its programs
        </Link>
      </PageHead>
      <Figures job={job} />
      <Waits job={job} />
      <Tabs
        label="Parts of the job"
        value={tab === "weights" ? "weights" : "run"}
        onChange={(next) =>
          void navigate({
            search: (old) => ({ ...old, tab: next === "run" ? undefined : next }),
            replace: true,
            resetScroll: false,
          })
        }
        tabs={[
          { id: "run", label: "Batches and groups", content: <Run job={job} /> },
          { id: "weights", label: "Weights", content: <Weights job={job} /> },
        ]}
      />
    </div>
  );
}

function Run({ job }: { job: TrainingJob }) {
  return (
    <>
      <Batches job={job} />
      <Groups job={job} />
      <div className="grid-side">
        <Account account={job.account} />
        <Settings job={job} />
      </div>
      <Domains account={job.account} />
      {job.profile ? <Affinity profile={job.profile} /> : null}
    </>
  );
}

function Figures({ job }: { job: TrainingJob }) {
  const { served, lag } = job.account;
  const { batch_groups, lag_max } = job.settings;
  const versionNote =
    job.version === null
      ? "the trainer has to report it"
      : job.digest !== null
        ? job.digest
        : job.lineage > 0
          ? `went back ${plural(job.lineage, "time")}`
          : undefined;
  return (
    <dl className="stats">
      <Stat
        label="Next batch"
        value={count(job.next_batch)}
        note={job.checkpoint > 0 ? `checkpoint after ${count(job.checkpoint)}` : "no checkpoint"}
      />
      <Stat
        label="Version"
        value={count(job.version)}
        note={versionNote ? <Text value={versionNote} max={80} /> : undefined}
      />
      <Stat label="Groups queued" value={count(job.queued)} />
      <Stat label="Groups running" value={count(job.running)} />
      <Stat
        label="Groups ready"
        value={count(job.ready)}
        note={`of ${count(batch_groups)} in a batch`}
      />
      <Stat label="Held programs" value={count(job.held)} />
      <Stat
        label="Members served"
        value={count(served.members)}
        note={`mean reward ${rewardText(served.reward_mean)}`}
      />
      <Stat label="Largest lag" value={count(lag)} unit={`of ${count(lag_max)}`} />
    </dl>
  );
}

function Waits({ job: { waits } }: { job: TrainingJob }) {
  return (
    <Panel title="Who waits" flush={waits.length > 0}>
      {waits.length === 0 ? (
        <p className="soft">Nobody.</p>
      ) : (
        <ul className="alarms">
          {waits.map((wait) => (
            <li key={`${wait.who} ${wait.waits_for}`}>
              <Icon name="pause" />
              <div>
                <strong>
                  The {wait.who} {wait.who.endsWith("s") ? "wait" : "waits"} for {wait.waits_for}
                </strong>
                <p className="soft">
                  <Text value={sentence(wait.message)} max={600} />
                </p>
              </div>
            </li>
          ))}
        </ul>
      )}
    </Panel>
  );
}

function Settings({ job: { settings } }: { job: TrainingJob }) {
  return (
    <Panel title="Settings" note="docs/training.md explains them">
      <dl className="facts">
        {Object.entries(settings).map(([name, value]) => (
          <div key={name} className="fact">
            <dt className="mono">{name}</dt>
            <dd>
              {value === null ? (
                "–"
              ) : (
                <Text value={typeof value === "object" ? JSON.stringify(value) : String(value)} />
              )}
            </dd>
          </div>
        ))}
      </dl>
    </Panel>
  );
}
