// The latest batches of a job: their figures, and the members of the one that is chosen.
import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useMemo } from "react";
import {
  BATCH_GROUPS_MAX,
  type TrainingBatch,
  type TrainingJob,
  trainingBatches,
} from "../../api/training";
import { useRights } from "../../app/Account";
import { count, short } from "../../format/number";
import { figuresOf, rewardText } from "../../model/training";
import { Failure, Loading, Panel } from "../../ui/Panel";
import { Badge } from "../../ui/State";
import { AxisChoice, axisOf, BatchLines } from "./BatchLines";
import { Members } from "./Members";

export function Batches({ job }: { job: TrainingJob }) {
  const { batch: chosen, axis: named } = useSearch({ from: "/training/$job" });
  const rights = useRights();
  const { data, error, refetch } = useQuery({ ...trainingBatches(job.job), enabled: rights.job });
  const batch = data?.find((one) => String(one.batch) === chosen);
  const axis = axisOf(named);
  const all = job.next_batch - 1 - job.checkpoint;
  const notes = [
    data && data.length < all ? `the latest ${data.length} of ${count(all)}` : "the newest first",
    job.settings.batch_groups > BATCH_GROUPS_MAX
      ? `of each, at most ${BATCH_GROUPS_MAX} groups, evenly spread`
      : "",
  ];
  return (
    <>
      <Panel
        title="Batches since the checkpoint"
        note={notes.filter(Boolean).join("; ")}
        flush={data !== undefined && data.length > 0}
        actions={data && data.length > 0 ? <AxisChoice axis={axis} /> : undefined}
      >
        {!rights.job ? (
          <p className="soft">To read batches takes a token that may run programs.</p>
        ) : data && data.length > 0 ? (
          <>
            <BatchLines batches={data} job={job} axis={axis} />
            <BatchTable batches={data} chosen={chosen} />
          </>
        ) : data ? (
          <p className="soft">
            None. A batch is cut when the trainer asks for it, and released once it is in a
            checkpoint.
          </p>
        ) : error ? (
          <Failure error={error} retry={() => void refetch()} />
        ) : (
          <Loading rows={4} />
        )}
      </Panel>
      {batch ? <Members batch={batch} job={job} /> : null}
      {chosen && data && !batch ? (
        <p className="soft">Batch {chosen} is not among the latest ones.</p>
      ) : null}
    </>
  );
}

function BatchTable({ batches, chosen }: { batches: TrainingBatch[]; chosen: string | undefined }) {
  const navigate = useNavigate({ from: "/training/$job" });
  const open = (batch: number) =>
    void navigate({
      search: (old) => ({ ...old, batch: String(batch) }),
      replace: true,
      resetScroll: false,
    });
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways
    <div className="plain-scroll" tabIndex={0}>
      <table className="plain">
        <thead>
          <tr>
            <th>Batch</th>
            <th>State</th>
            <th className="num wide-only">Groups</th>
            <th className="num wide-only">Members</th>
            <th className="num">Mean reward</th>
            <th className="num wide-only">Spread in groups</th>
            <th className="num">Mean tokens</th>
            <th className="num">Largest lag</th>
          </tr>
        </thead>
        <tbody>
          {batches.map((batch) => (
            <BatchRow
              key={batch.batch}
              batch={batch}
              isChosen={String(batch.batch) === chosen}
              open={() => open(batch.batch)}
            />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function BatchRow({
  batch,
  isChosen,
  open,
}: {
  batch: TrainingBatch;
  isChosen: boolean;
  open: () => void;
}) {
  const figures = useMemo(() => figuresOf(batch), [batch]);
  return (
    <tr className="row-link" aria-current={isChosen ? "true" : undefined} onClick={open}>
      <td>
        <button type="button" className="account-link" onClick={open}>
          batch {count(batch.batch)}
        </button>
      </td>
      <td>
        <Badge tone={batch.trained ? "good" : "neutral"}>
          {batch.trained ? "trained" : "not trained"}
        </Badge>
      </td>
      <td className="num wide-only">{count(batch.groups.length)}</td>
      <td className="num wide-only">{count(figures.members)}</td>
      <td className="num">{rewardText(figures.rewardMean)}</td>
      <td className="num wide-only">
        <span title="Largest less smallest reward of a group, the mean over groups">
          {rewardText(figures.rewardSpread)}
        </span>
      </td>
      <td className="num">{short(figures.tokensMean)}</td>
      <td className="num">{count(figures.lagMax)}</td>
    </tr>
  );
}
