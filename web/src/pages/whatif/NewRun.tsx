// Asks for a run: which sets of policies, over which part of the journal.
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { ApiError, call } from "../../api/client";
import { journalExtent, queryClient } from "../../api/queries";
import type { StartRun } from "../../api/types";
import { journalNow } from "../../live/clock";
import { configOf, type Field } from "../../model/schemaForm";
import { setsOf, textOf } from "../../model/sets";
import { type WindowForm, windowOf } from "../../model/window";
import { Icon } from "../../ui/Icon";
import { Panel } from "../../ui/Panel";
import { SchemaFields } from "../../ui/SchemaFields";
import { Text } from "../../ui/Text";
import { ProfileField, profileOf } from "./ProfileField";
import { SetsAsJson, SetsByName } from "./Sets";
import { WindowFields } from "./WindowFields";

const NOTHING: WindowForm = {
  span: "last",
  minutes: "30",
  fromTime: "",
  toTime: "",
  fromSeq: "",
  toSeq: "",
  job: "",
};

/** How replays are made; the daemon's bounds and defaults. */
const SETTINGS: Field[] = [
  setting("seeds", "integer", 3, "The first leaves all as recorded.", 1, 32),
  setting("jitter", "number", 0.05, "How much tools and arrivals vary, as a share.", 0, 0.9),
  setting("kv_tokens", "integer", "as recorded", "KV memory of each engine, in tokens.", 1),
  setting("differences", "integer", 10, "Differing decisions shown for each set.", 0, 200),
  setting(
    "slot_lag_s",
    "number",
    2,
    "A program that opens so many seconds after another one's end takes its slot. Raise it where the journal's clock runs faster.",
    0,
    86_400,
  ),
];

function setting(
  key: string,
  kind: "integer" | "number",
  initial: unknown,
  description: string,
  min: number,
  max?: number,
): Field {
  return { key, kind, initial, description, min, max, required: false, choices: [] };
}

export function NewRun({ onStarted }: { onStarted: (run: string) => void }) {
  const [names, setNames] = useState<string[]>(["recorded", "sticky"]);
  /** The sets as JSON, where they are written so. */
  const [json, setJson] = useState<string | null>(null);
  const [form, setForm] = useState(NOTHING);
  const [texts, setTexts] = useState<Record<string, string>>({});
  const [profile, setProfile] = useState("");
  const [error, setError] = useState<string | null>(null);
  const { data: extent } = useQuery(journalExtent);
  const { window, errors } = windowOf(form, extent ?? undefined, journalNow());
  const settings = configOf(SETTINGS, texts);
  const { profile: named, error: profileError } = profileOf(profile);
  const { sets, error: setsError } = json === null ? { sets: names, error: null } : setsOf(json);
  const hidden = Object.keys(settings.errors).length + (profileError ? 1 : 0);
  const wrong = Object.keys(errors).length + hidden + (setsError ? 1 : 0);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setError(null);
    try {
      const run = await call("post", "/api/v1/what-if/runs", {
        body: { ...settings.config, sets, window, profile: named } as unknown as StartRun,
      });
      await queryClient.invalidateQueries({ queryKey: ["whatIf"] });
      onStarted(run.run);
    } catch (cause) {
      setError(cause instanceof ApiError ? cause.message : String(cause));
    }
  };
  return (
    <Panel title="New run">
      <form className="form" onSubmit={(event) => void submit(event)}>
        <div className="field">
          <span className="field-label">Sets of policies, the baseline first</span>
          {json === null ? (
            <SetsByName sets={names} onChange={setNames} />
          ) : (
            <SetsAsJson text={json} error={setsError} onChange={setJson} />
          )}
          <label className="check">
            <input
              type="checkbox"
              checked={json !== null}
              onChange={(event) => setJson(event.target.checked ? textOf(names) : null)}
            />
            Edit as JSON
          </label>
        </div>
        <WindowFields form={form} errors={errors} onChange={setForm} />
        <details className="advanced">
          <summary>
            Seeds, engines and more{" "}
            {hidden > 0 ? <span className="field-error">{hidden} to correct</span> : null}
          </summary>
          <SchemaFields
            fields={SETTINGS}
            texts={texts}
            errors={settings.errors}
            onChange={(key, text) => setTexts((before) => ({ ...before, [key]: text }))}
          />
          <ProfileField text={profile} error={profileError} onChange={setProfile} />
        </details>
        {error ? (
          <p className="field-error" role="alert">
            <Text value={error} max={1000} />
          </p>
        ) : null}
        <button type="submit" className="button primary" disabled={sets.length === 0 || wrong > 0}>
          <Icon name="play" />
          Run
        </button>
      </form>
    </Panel>
  );
}
