// Makes the policies of a set canaries for the jobs of the comparison.
import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { call } from "../../api/client";
import { bindings, plugins, queryClient, whoami } from "../../api/queries";
import type { WhatIfReport } from "../../api/types";
import { useRights } from "../../app/Account";
import { plural } from "../../format/number";
import { visibleText } from "../../format/text";
import { Confirm } from "../../ui/Dialog";
import { notify } from "../../ui/notices";
import { shortPolicy } from "../policies/names";
import { scopeOfNew } from "../policies/scope";
import { type Trial, trialsOf } from "./trials";

const SHARE = 0.1;

interface Props {
  report: WhatIfReport;
  job: string;
  /** The set that is offered until another one is chosen. */
  best: string | undefined;
}

export function CanarySet({ report, job, best }: Props) {
  const rights = useRights();
  const { data } = useQuery(plugins);
  const { data: bound } = useQuery(bindings);
  const [chosen, setChosen] = useState(best);
  if (!data || !bound) return null;
  const choices = report.sets
    .map((set) => ({
      name: set.name,
      trials: trialsOf(set, data.plugins, bound.bindings, job),
    }))
    .filter(({ trials }) => trials.length > 0);
  const choice = choices.find(({ name }) => name === chosen) ?? choices[0];
  if (!choice)
    return <p className="field-note">No set has a stored policy, so none can be a canary here.</p>;
  if (!rights.manage)
    return <p className="field-note">Sign in as an operator to make a set a canary.</p>;
  return (
    <div className="role-actions">
      <select
        className="input"
        aria-label="The set to canary"
        value={choice.name}
        onChange={(event) => setChosen(event.target.value)}
      >
        {choices.map(({ name }) => (
          <option key={name} value={name}>
            {visibleText(name, 60)}
          </option>
        ))}
      </select>
      <StartTrial name={choice.name} trials={choice.trials} job={job} />
    </div>
  );
}

/** The question before a set's policies become canaries; none where all are at work already. */
function StartTrial({ name, trials, job }: { name: string; trials: Trial[]; job: string }) {
  const { data: asker } = useQuery(whoami);
  if (!asker) return null;
  const scope = scopeOfNew(job, asker);
  const left = trials.filter(({ role }) => role === null);
  if (left.length === 0)
    return (
      <p className="field-note">
        It is {trials[0]?.role} already. <Link to="/policies">Watch it</Link>
      </p>
    );
  if (!scope.permitted)
    return <p className="field-note">That takes a token of the whole daemon.</p>;
  const start = async () => {
    for (const { plugin, config } of left) {
      const { digest: policy, world } = plugin;
      const body = { policy, world, job, role: "canary", share: SHARE };
      await call("put", "/api/v1/bindings", {
        body: { ...body, config: config as Record<string, never> },
      });
    }
    await queryClient.invalidateQueries({ queryKey: ["bindings"] });
    notify(`${visibleText(name, 80)} decides for a tenth of the programs of ${scope.text}.`);
  };
  return (
    <Confirm
      title={`Canary ${visibleText(name, 80)}?`}
      text={`For a tenth of the programs of ${scope.text} ${left.map(inWords).join("; ")}. A canary is ended if they fare worse. What else the set has, its mode and settings, stays as it is.`}
      action="Start the canary"
      onConfirm={start}
      trigger={(open) => (
        <button type="button" className="button primary small" onClick={open}>
          Canary it
        </button>
      )}
    />
  );
}

function inWords({ plugin, config, replaces }: Trial): string {
  const policy = visibleText(`${plugin.name}@${plugin.version}`, 80);
  const keys = Object.keys(config).length;
  const configured = keys > 0 ? ` with ${plural(keys, "setting")}` : "";
  const instead = replaces ? ` in place of the canary ${shortPolicy(replaces)}` : "";
  return `${policy}${configured} decides on ${plugin.world}${instead}`;
}
