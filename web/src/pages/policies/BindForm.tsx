// Gives a policy a role, with a configuration from a form made of its own schema.
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { ApiError, call } from "../../api/client";
import { bindings, memory, queryClient, whoami } from "../../api/queries";
import type { PluginDetails } from "../../api/types";
import { notify } from "../../ui/notices";
import { Panel } from "../../ui/Panel";
import { JsonField, SchemaFields } from "../../ui/SchemaFields";
import { Text } from "../../ui/Text";
import { configFieldsOf, nestedConfigOf, presentConfig, textsOf } from "./configForm";
import { scopeOfNew } from "./scope";

type Role = "shadow" | "canary" | "active";

const ROLES: { role: Role; label: string; meaning: string }[] = [
  { role: "shadow", label: "Shadow", meaning: "Its answers are compared, never applied." },
  {
    role: "canary",
    label: "Canary",
    meaning: "Its answers are applied to a share of the programs; it ends if they fare worse.",
  },
  {
    role: "active",
    label: "Active",
    meaning: "Its answers are applied, from the next question on.",
  },
];

export function BindForm({ plugin }: { plugin: PluginDetails }) {
  const fields = configFieldsOf(plugin.config_schema);
  /** What was entered; the present configuration shows where nothing was. */
  const [edits, setEdits] = useState<Record<string, string>>({});
  const [json, setJson] = useState<string | null>(null);
  const [role, setRole] = useState<Role>("shadow");
  const [job, setJob] = useState("*");
  const [share, setShare] = useState("10");
  const [error, setError] = useState<string | null>(null);
  const { data: bound, isPending } = useQuery(bindings);
  const ofWorld = (bound?.bindings ?? []).filter((one) => one.world === plugin.world);
  // A tenant's own one for all its jobs comes after everyone's.
  const binding =
    ofWorld.findLast((one) => one.job === job.trim()) ?? ofWorld.findLast((one) => one.job === "*");
  const present = presentConfig(plugin, binding);
  const texts = { ...(fields ? textsOf(fields, present?.config ?? {}) : {}), ...edits };
  const shownJson = json ?? JSON.stringify(present?.config ?? {}, null, 2);
  const entered = fields ? nestedConfigOf(fields, texts) : null;
  const invalid = entered !== null && Object.keys(entered.errors).length > 0;
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setError(null);
    try {
      const config = entered ? entered.config : (JSON.parse(shownJson) as Record<string, unknown>);
      const answer = await call("put", "/api/v1/bindings", {
        body: {
          policy: plugin.digest,
          world: plugin.world,
          job: job.trim() || "*",
          role,
          config: config as Record<string, never>,
          share: role === "canary" ? Number(share) / 100 : null,
        },
      });
      notify(
        `${plugin.name} is ${answer.role} for ${answer.job === "*" ? "all jobs" : answer.job}.`,
      );
      await queryClient.invalidateQueries({ queryKey: ["bindings"] });
    } catch (cause) {
      setError(
        cause instanceof ApiError ? cause.message : `The configuration is no JSON: ${cause}`,
      );
    }
  };
  return (
    <form className="grid-side" onSubmit={(event) => void submit(event)}>
      <Panel
        title="Configuration"
        note={
          <>
            {present ? (
              <>
                as it is at present (<Text value={present.from} max={120} />
                );{" "}
              </>
            ) : null}
            empty fields keep the default
          </>
        }
      >
        {fields ? (
          <SchemaFields
            fields={fields}
            texts={texts}
            errors={entered?.errors ?? {}}
            onChange={(key, text) => setEdits((before) => ({ ...before, [key]: text }))}
          />
        ) : (
          <JsonField value={shownJson} onChange={setJson} />
        )}
      </Panel>
      <Panel title="Bind">
        <fieldset className="role-choice">
          <legend className="field-label">Role</legend>
          {ROLES.map((one) => (
            <label key={one.role} className={role === one.role ? "radio chosen" : "radio"}>
              <input
                type="radio"
                name="role"
                checked={role === one.role}
                onChange={() => setRole(one.role)}
              />
              <span>
                <strong>{one.label}</strong>
                <span className="field-note">{one.meaning}</span>
              </span>
            </label>
          ))}
        </fieldset>
        {role === "canary" ? (
          <label className="field">
            <span className="field-label">Share of the programs, in per cent</span>
            <input
              className="input"
              type="number"
              min="1"
              max="99"
              value={share}
              onChange={(event) => setShare(event.target.value)}
            />
          </label>
        ) : null}
        <JobField value={job} onChange={setJob} />
        {error ? (
          <p className="field-error" role="alert">
            <Text value={error} max={1000} />
          </p>
        ) : null}
        <button type="submit" className="button primary" disabled={invalid || isPending}>
          Bind as {role}
        </button>
      </Panel>
    </form>
  );
}

function JobField({ value, onChange }: { value: string; onChange: (job: string) => void }) {
  const { data } = useQuery(memory);
  return (
    <>
      <label className="field">
        <span className="field-label">For job</span>
        <input
          className="input"
          list="jobs"
          required
          value={value}
          onChange={(event) => onChange(event.target.value)}
        />
        <datalist id="jobs">
          <option value="*">all jobs</option>
          {(data?.jobs ?? []).map((job) => (
            <option key={`${job.tenant}/${job.job}`} value={job.job} />
          ))}
        </datalist>
        <span className="field-note">* stands for all jobs without their own.</span>
      </label>
      <ScopeNote job={value.trim() || "*"} />
    </>
  );
}

/** For whom the binding will hold: that depends on the caller's tenant too. */
function ScopeNote({ job }: { job: string }) {
  const { data } = useQuery(whoami);
  if (!data) return null;
  const { text, permitted } = scopeOfNew(job, data);
  return (
    <p className="field-note" role="status">
      It will hold for <strong>{text}</strong>.
      {permitted ? "" : " That takes a token of the whole daemon: name a job instead."}
    </p>
  );
}
