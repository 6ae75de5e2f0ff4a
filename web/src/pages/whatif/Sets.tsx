// Which sets of policies a run compares: chosen by name, or written as JSON.
import { useQuery } from "@tanstack/react-query";
import { plugins } from "../../api/queries";
import { visibleText } from "../../format/text";
import { SETS_MAX, textOf } from "../../model/sets";
import { Choice } from "../../ui/Choice";
import { Icon } from "../../ui/Icon";
import { Text } from "../../ui/Text";

const BUILT_IN = ["recorded", "treadle", "sticky", "least-load"];
const REPLAYED_WORLDS = ["eviction", "priority", "placement"];

interface Props {
  names: string[];
  /** The sets as JSON, where they are written so. */
  json: string | null;
  error: string | null;
  onNames: (names: string[]) => void;
  onJson: (json: string | null) => void;
}

export function SetsField({ names, json, error, onNames, onJson }: Props) {
  return (
    <div className="field">
      <span className="field-label">Sets of policies, the baseline first</span>
      {json === null ? (
        <SetsByName sets={names} onChange={onNames} />
      ) : (
        <SetsAsJson text={json} error={error} onChange={onJson} />
      )}
      <label className="check">
        <input
          type="checkbox"
          checked={json !== null}
          onChange={(event) => onJson(event.target.checked ? textOf(names) : null)}
        />
        Edit as JSON
      </label>
    </div>
  );
}

function SetsByName({ sets, onChange }: { sets: string[]; onChange: (sets: string[]) => void }) {
  const { data } = useQuery(plugins);
  const names = new Set(
    (data?.plugins ?? [])
      .filter((plugin) => REPLAYED_WORLDS.includes(plugin.world))
      .map((plugin) => `${plugin.name}@${plugin.version}`),
  );
  const left = [...BUILT_IN, ...names].filter((name) => !sets.includes(name));
  return (
    <>
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
    </>
  );
}

function SetsAsJson({
  text,
  error,
  onChange,
}: {
  text: string;
  error: string | null;
  onChange: (text: string) => void;
}) {
  return (
    <>
      <textarea
        className="input mono"
        aria-label="Sets as JSON"
        aria-invalid={error !== null}
        rows={8}
        spellCheck={false}
        value={text}
        onChange={(event) => onChange(event.target.value)}
      />
      {error ? <span className="field-error">{error}</span> : null}
      <span className="field-note">
        Names and objects: {'{"name", "mode", "policies": [{"policy", "config"}], "settings"}'}.
        Settings are those of the journal's event <code>configured</code>, such as{" "}
        <code>{'{"low_watermark_ppm": 700000}'}</code>.
      </span>
    </>
  );
}
