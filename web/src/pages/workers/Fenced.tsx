// A worker that gets no steps because of its weights: which version it holds, why, and what helps.
import { useQueries, useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { workers } from "../../api/queries";
import { trainingJobs } from "../../api/training";
import type { WorkerView } from "../../api/types";
import { jobWeights } from "../../api/weights";
import { sentence } from "../../format/text";
import { sameEngine } from "../../model/endpoints";
import { phaseOf, reasonOf, versionText } from "../../model/weights";
import { Icon } from "../../ui/Icon";
import { Text } from "../../ui/Text";

/** Jobs whose weights are asked for. */
const JOBS_MAX = 20;

export function Fenced({ worker }: { worker: WorkerView }) {
  const { data: list } = useQuery(workers);
  const { data: jobs } = useQuery(trainingJobs);
  const own = sameEngine(worker, list?.workers ?? [worker]);
  const asked = (jobs?.jobs ?? []).slice(0, JOBS_MAX);
  const found = useQueries({
    queries: asked.map(({ job }) => jobWeights(job)),
    combine: (answers) =>
      answers
        .flatMap(({ data }) => (data ? [data] : []))
        .flatMap((weights) =>
          weights.workers
            .filter((one) => own.includes(one.worker))
            .map((holding) => ({ weights, holding })),
        )[0],
  });
  const { problem } = worker;
  if (!found)
    return (
      <p className="problem" role="status">
        <Icon name="warning" />
        <span>
          It gets no steps because of its weights
          {problem ? (
            <>
              : <Text value={problem} max={300} />
            </>
          ) : null}
          .
        </span>
      </p>
    );
  const { holding, weights } = found;
  const reason = reasonOf(holding, weights);
  return (
    <div className="problem" role="status">
      <Icon name="warning" />
      <div>
        It gets no steps because of its weights: it has {versionText(holding.held)} of{" "}
        <Link to="/training/$job" params={{ job: weights.job }} search={{ tab: "weights" }}>
          <Text value={weights.job} max={80} />
        </Link>{" "}
        ({phaseOf(holding).label}).{" "}
        {reason ? (
          <>
            <Text value={sentence(reason.cause)} max={400} />
            <div className="soft">
              <Text value={reason.remedy} max={400} />
            </div>
          </>
        ) : null}
      </div>
    </div>
  );
}
