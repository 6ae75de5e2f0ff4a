// Asks for a run: which sets of policies, over which part of the journal.
import { useQuery } from "@tanstack/react-query";
import { type FormEvent, useState } from "react";
import { ApiError, call } from "../../api/client";
import { journalExtent, plugins, queryClient } from "../../api/queries";
import type { StartRun } from "../../api/types";
import { visibleText } from "../../format/text";
import { journalNow } from "../../live/clock";
import { configOf, type Field } from "../../model/schemaForm";
import { type WindowForm, windowOf } from "../../model/window";
import { Choice } from "../../ui/Choice";
import { Icon } from "../../ui/Icon";
import { Panel } from "../../ui/Panel";
import { SchemaFields } from "../../ui/SchemaFields";
import { Text } from "../../ui/Text";
import { WindowFields } from "./WindowFields";

const BUILT_IN = ["recorded", "treadle", "sticky", "least-load"];
const REPLAYED_WORLDS = ["eviction", "priority", "placement"];
const SETS_MAX = 8;
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
  const [sets, setSets] = useState<string[]>(["recorded", "sticky"]);
  const [form, setForm] = useState(NOTHING);
  const [texts, setTexts] = useState<Record<string, string>>({});
  const [profile, setProfile] = useState("");
  const [error, setError] = useState<string | null>(null);
  const { data: extent } = useQuery(journalExtent);
  const { window, errors } = windowOf(form, extent ?? undefined, journalNow());
  const settings = configOf(SETTINGS, texts);
  const hidden = Object.keys(settings.errors).length;
  const wrong = Object.keys(errors).length + hidden;
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setError(null);
    try {
      const named = profile.trim() === "" ? null : profileOf(profile.trim());
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
        <Sets sets={sets} onChange={setSets} />
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
          <label className="field">
            <span className="field-label mono">profile</span>
            <textarea
              className="input"
              rows={2}
              spellCheck={false}
              placeholder="the engines are asked"
              value={profile}
              onChange={(event) => setProfile(event.target.value)}
            />
            <span className="field-note">
              How fast engines are: the name of a preset, such as qwen3-32b-h100, or the document
              that treadle-bench calibrate writes. Real engines report none.
            </span>
          </label>
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

/** A preset's name, or a document. */
function profileOf(text: string): unknown {
  if (!text.startsWith("{")) return text;
  try {
    return JSON.parse(text);
  } catch (cause) {
    throw new Error(`The profile is no JSON: ${cause}`);
  }
}

function Sets({ sets, onChange }: { sets: string[]; onChange: (sets: string[]) => void }) {
  const { data } = useQuery(plugins);
  const names = new Set(
    (data?.plugins ?? [])
      .filter((plugin) => REPLAYED_WORLDS.includes(plugin.world))
      .map((plugin) => `${plugin.name}@${plugin.version}`),
  );
  const left = [...BUILT_IN, ...names].filter((name) => !sets.includes(name));
  return (
    <div className="field">
      <span className="field-label">Sets of policies, the baseline first</span>
      <ul className="sets">
        {sets.map((name, at) => (
          <li key={name}>
            <span className="clip">
              <Text value={name} max={80} />
            </span>
            {at === 0 ? <span className="dim">baseline</span> : null}
            <button
              type="button"
              className="button ghost icon-only"
              aria-label={`Take out ${visibleText(name, 60)}`}
              onClick={() => onChange(sets.filter((one) => one !== name))}
            >
              <Icon name="close" />
            </button>
          </li>
        ))}
      </ul>
      {sets.length < SETS_MAX ? (
        <Choice
          label="Add a set"
          all="Add a set…"
          value=""
          options={left.map((name) => [name, visibleText(name, 80)])}
          onChange={(name) => name && onChange([...sets, name])}
        />
      ) : null}
    </div>
  );
}
