// Gives a policy a role, with a configuration from a form made of its own schema.
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { ApiError, call } from "../../api/client";
import { memory, queryClient } from "../../api/queries";
import type { PluginDetails } from "../../api/types";
import { configOf, fieldsOf } from "../../model/schemaForm";
import { notify } from "../../ui/notices";
import { Panel } from "../../ui/Panel";
import { JsonField, SchemaFields } from "../../ui/SchemaFields";
import { Text } from "../../ui/Text";

type Role = "shadow" | "canary" | "active";

const ROLES: { role: Role; label: string; meaning: string }[] = [
  { role: "shadow", label: "Shadow", meaning: "It is asked and compared, never obeyed." },
  {
    role: "canary",
    label: "Canary",
    meaning: "It is obeyed for a share of the programs, and ended if they fare worse.",
  },
  {
    role: "active",
    label: "Active",
    meaning: "Its answers are obeyed, from the next question on.",
  },
];

export function BindForm({ plugin }: { plugin: PluginDetails }) {
  const fields = fieldsOf(plugin.config_schema);
  const [texts, setTexts] = useState<Record<string, string>>({});
  const [json, setJson] = useState("{}");
  const [role, setRole] = useState<Role>("shadow");
  const [job, setJob] = useState("*");
  const [share, setShare] = useState("10");
  const [error, setError] = useState<string | null>(null);
  const entered = fields ? configOf(fields, texts) : null;
  const invalid = entered !== null && Object.keys(entered.errors).length > 0;
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setError(null);
    try {
      const config = entered ? entered.config : (JSON.parse(json) as Record<string, unknown>);
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
      <Panel title="Configuration" note="empty fields keep the default">
        {fields ? (
          <SchemaFields
            fields={fields}
            texts={texts}
            errors={entered?.errors ?? {}}
            onChange={(key, text) => setTexts((before) => ({ ...before, [key]: text }))}
          />
        ) : (
          <JsonField value={json} onChange={setJson} />
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
        <button type="submit" className="button primary" disabled={invalid}>
          Bind as {role}
        </button>
      </Panel>
    </form>
  );
}

function JobField({ value, onChange }: { value: string; onChange: (job: string) => void }) {
  const { data } = useQuery(memory);
  return (
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
  );
}
