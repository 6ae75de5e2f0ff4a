// Takes a worker out of service, back into it, or off the list; each after a question.
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { call } from "../../api/client";
import { queryClient, workers } from "../../api/queries";
import type { WorkerView } from "../../api/types";
import { useRights } from "../../app/Account";
import { plural } from "../../format/number";
import { Confirm } from "../../ui/Dialog";
import { notify } from "../../ui/notices";
import { stateOf } from "./parts";

interface Change {
  to: "active" | "cordoned" | "draining";
  action: string;
  done: string;
  text: (worker: WorkerView) => string;
}

const CHANGES: Change[] = [
  {
    to: "active",
    action: "Activate",
    done: "takes programs again",
    text: () => "It is given programs again, from the next decision on.",
  },
  {
    to: "cordoned",
    action: "Cordon",
    done: "is given no more programs",
    text: (worker) =>
      `It is given no more programs. Those placed on it (${worker.programs}) keep their place and their cache, and go on.`,
  },
  {
    to: "draining",
    action: "Drain",
    done: "is being drained",
    text: (worker) =>
      `It is given no more programs. Those placed on it (${worker.programs}) leave as soon as nothing of them runs there, with their cache where moving it is quicker than computing it again. ${plural(worker.load, "running step")} will end there. Once it is drained it can be removed and nothing is sent twice.`,
  },
];

export function WorkerActions({ worker }: { worker: WorkerView }) {
  const rights = useRights();
  const { data } = useQuery(workers);
  if (!rights.operator) return null;
  const state = stateOf(worker);
  const now = state === "drained" ? "draining" : state;
  const others = (data?.workers ?? []).filter(
    (one) => one.id !== worker.id && one.is_healthy && stateOf(one) === "active",
  );
  const warning =
    others.length === 0 ? " No other worker takes programs now: new ones will wait." : "";
  const change = async ({ to, done }: Change) => {
    await call("patch", "/api/v1/workers/{worker}", {
      path: { worker: worker.id },
      body: { state: to },
    });
    notify(`Worker ${worker.id} ${done}.`);
    await queryClient.invalidateQueries({ queryKey: ["workers"] });
  };
  return (
    <>
      {CHANGES.filter((one) => one.to !== now).map((one) => (
        <Confirm
          key={one.to}
          title={`${one.action} worker ${worker.id}?`}
          text={one.text(worker) + (one.to === "active" ? "" : warning)}
          action={one.action}
          onConfirm={() => change(one)}
          trigger={(open) => (
            <button type="button" className="button small" onClick={open}>
              {one.action}
            </button>
          )}
        />
      ))}
      <Remove worker={worker} />
    </>
  );
}

function Remove({ worker }: { worker: WorkerView }) {
  const navigate = useNavigate({ from: "/workers" });
  const remove = async () => {
    await call("delete", "/api/v1/workers/{worker}", { path: { worker: worker.id } });
    notify(`Worker ${worker.id} was removed.`);
    await queryClient.invalidateQueries({ queryKey: ["workers"] });
    await navigate({ search: {} });
  };
  const text =
    stateOf(worker) === "drained"
      ? "It is drained: no program and no step is lost. The engine itself goes on."
      : `Programs placed on it: ${worker.programs}. They lose their place, and its ${plural(worker.load, "running step")} are sent again elsewhere; drained first, they would not be. The engine itself goes on.`;
  return (
    <Confirm
      title={`Remove worker ${worker.id}?`}
      text={text}
      action="Remove"
      danger
      onConfirm={remove}
      trigger={(open) => (
        <button type="button" className="button small danger" onClick={open}>
          Remove
        </button>
      )}
    />
  );
}
