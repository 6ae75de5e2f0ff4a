// One action: how it ended, what it had, and what it wrote.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { call } from "../../api/client";
import { action as actionQuery, queryClient } from "../../api/queries";
import type { ActionView } from "../../api/types";
import { useRights } from "../../app/Account";
import { bytes, count } from "../../format/number";
import { duration } from "../../format/time";
import { journalNow } from "../../live/clock";
import { amounts, causeOf, endingOf, timesOf } from "../../model/actions";
import { Confirm } from "../../ui/Dialog";
import { notify } from "../../ui/notices";
import { Failure, Loading, Panel, Stat } from "../../ui/Panel";
import { Text, TextBlock } from "../../ui/Text";
import { Time } from "../../ui/Time";
import { ActionState } from "./Actions";

export function ActionDetail({ action }: { action: number }) {
  const { data, error, refetch } = useQuery(actionQuery(action));
  if (error) return <Failure error={error} retry={() => void refetch()} />;
  if (!data) return <Loading rows={4} />;
  return (
    <Panel
      title={`Action ${data.action}`}
      note={<Text value={data.kind} max={80} />}
      actions={
        <>
          <ActionState action={data} />
          {data.program_id ? (
            <Link
              to="/programs/$program"
              params={{ program: data.program_id }}
              className="button small"
            >
              Its program
            </Link>
          ) : null}
          <Withdraw action={data} />
        </>
      }
    >
      <Figures action={data} />
      <Ended action={data} />
      {data.output ? (
        <>
          <h3>Output, {bytes(data.output.bytes)}</h3>
          <TextBlock value={data.output.text} />
        </>
      ) : null}
    </Panel>
  );
}

function Figures({ action }: { action: ActionView }) {
  const times = timesOf(action, journalNow());
  return (
    <dl className="stats">
      <Stat label="Queue" value={duration(times.queue)} />
      <Stat label="Overhead" value={duration(times.overhead)} />
      <Stat label="Run" value={duration(times.run)} />
      <Stat label="Needs" value={amounts(action.cost)} />
      <Stat label="Has, or had" value={amounts(action.given)} />
      <Stat label="Attempts" value={count(action.attempts)} />
    </dl>
  );
}

function Ended({ action }: { action: ActionView }) {
  const ending = endingOf(action);
  const cause = causeOf(action);
  return (
    <p className="soft">
      Submitted <Time us={action.submitted_at_us} />
      {action.idempotency_key ? (
        <>
          {" "}
          as <Text value={action.idempotency_key} max={120} />
        </>
      ) : null}
      . {ending?.meaning} {cause ? <Text value={cause} max={600} /> : null}
    </p>
  );
}

function Withdraw({ action }: { action: ActionView }) {
  const rights = useRights();
  if (!rights.operator || action.status === "ended") return null;
  const withdraw = async () => {
    await call("delete", "/api/v1/actions/{action}", { path: { action: action.action } });
    notify(`Action ${action.action} was withdrawn.`);
    await queryClient.invalidateQueries({ queryKey: ["action"] });
    await queryClient.invalidateQueries({ queryKey: ["actions"] });
  };
  return (
    <Confirm
      title={`Withdraw action ${action.action}?`}
      text="It is stopped if it runs, and ends as cancelled. What it has done so far stays done."
      action="Withdraw"
      danger
      onConfirm={withdraw}
      trigger={(open) => (
        <button type="button" className="button small danger" onClick={open}>
          Withdraw
        </button>
      )}
    />
  );
}
