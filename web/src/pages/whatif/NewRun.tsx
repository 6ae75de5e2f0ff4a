// The form for a run: its sets of policies, and its part of the journal or its trace.
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { ApiError, call } from "../../api/client";
import { journalExtent, queryClient } from "../../api/queries";
import { journalNow } from "../../live/clock";
import { configOf } from "../../model/schemaForm";
import { setsOf } from "../../model/sets";
import { type WindowForm, windowOf } from "../../model/window";
import { Icon } from "../../ui/Icon";
import { Panel } from "../../ui/Panel";
import { SchemaFields } from "../../ui/SchemaFields";
import { Text } from "../../ui/Text";
import { ProfileField, profileOf } from "./ProfileField";
import { requestOf, SHAPE, settingsOf, type Trace } from "./request";
import { SetsField } from "./Sets";
import { TraceFields, WorkChoice } from "./TraceFields";
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

export function NewRun({ onStarted }: { onStarted: (run: string) => void }) {
  const [names, setNames] = useState<string[]>(["recorded", "sticky"]);
  /** The sets as JSON, if they are written that way. */
  const [json, setJson] = useState<string | null>(null);
  const [form, setForm] = useState(NOTHING);
  /** The trace, if the run does not repeat the journal. */
  const [trace, setTrace] = useState<Trace | null>(null);
  const [texts, setTexts] = useState<Record<string, string>>({});
  const [profile, setProfile] = useState("");
  const [error, setError] = useState<string | null>(null);
  const { data: extent } = useQuery(journalExtent);
  const { window, errors } = windowOf(form, extent ?? undefined, journalNow());
  const fields = settingsOf(trace !== null);
  const settings = configOf(fields, texts);
  const shape = configOf(SHAPE, texts);
  const edit = (key: string, text: string) => setTexts((before) => ({ ...before, [key]: text }));
  const { profile: named, error: profileError } = profileOf(profile);
  const { sets, error: setsError } = json === null ? { sets: names, error: null } : setsOf(json);
  const hidden = Object.keys(settings.errors).length + (profileError ? 1 : 0);
  const seen = Object.keys(trace ? shape.errors : errors).length;
  const wrong = seen + hidden + (setsError || trace?.text === "" ? 1 : 0);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setError(null);
    try {
      const run = await call("post", "/api/v1/what-if/runs", {
        body: requestOf(sets, trace ?? window, texts, named),
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
        <SetsField {...{ names, json }} error={setsError} onNames={setNames} onJson={setJson} />
        <WorkChoice trace={trace} onChange={setTrace} />
        {trace ? (
          <TraceFields
            {...{ trace, texts }}
            errors={shape.errors}
            onTrace={setTrace}
            onText={edit}
          />
        ) : (
          <WindowFields form={form} errors={errors} onChange={setForm} />
        )}
        <details className="advanced">
          <summary>
            Seeds, engines and more{" "}
            {hidden > 0 ? <span className="field-error">{hidden} to correct</span> : null}
          </summary>
          <SchemaFields fields={fields} texts={texts} errors={settings.errors} onChange={edit} />
          <ProfileField
            text={profile}
            initial={trace ? "glm-4.6-8xh100" : "as measured at the engines"}
            error={profileError}
            onChange={setProfile}
          />
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
