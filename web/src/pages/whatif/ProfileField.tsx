// How fast the engines of a replay are: a preset, or the document of a calibration.
import { useState } from "react";
import { bytes } from "../../format/number";

/** The daemon takes no larger ones. */
const BYTES_MAX = 512 * 1024;

/** A preset's name, or a document; null to use the engines' measured speeds. */
export function profileOf(text: string): { profile: unknown; error: string | null } {
  const trimmed = text.trim();
  if (trimmed === "") return { profile: null, error: null };
  if (!trimmed.startsWith("{")) return { profile: trimmed, error: null };
  if (trimmed.length > BYTES_MAX)
    return { profile: null, error: `The profile is larger than ${bytes(BYTES_MAX)}.` };
  try {
    return { profile: JSON.parse(trimmed), error: null };
  } catch (cause) {
    const why = cause instanceof Error ? cause.message : String(cause);
    return { profile: null, error: `The profile is no JSON: ${why}` };
  }
}

export function ProfileField({
  text,
  initial,
  error,
  onChange,
}: {
  text: string;
  /** The placeholder for an empty field. */
  initial: string;
  error: string | null;
  onChange: (text: string) => void;
}) {
  const [unread, setUnread] = useState<string | null>(null);
  const read = async (file: File | undefined) => {
    setUnread(null);
    if (!file) return;
    if (file.size > BYTES_MAX) {
      setUnread(`${file.name} has ${bytes(file.size)}; a profile has ${bytes(BYTES_MAX)} at most.`);
      return;
    }
    onChange(await file.text());
  };
  const wrong = unread ?? error;
  return (
    <div className="field">
      <label className="field-label mono" htmlFor="whatif-profile">
        profile
      </label>
      <textarea
        id="whatif-profile"
        className="input"
        rows={2}
        spellCheck={false}
        aria-invalid={wrong !== null}
        placeholder={initial}
        value={text}
        onChange={(event) => {
          setUnread(null);
          onChange(event.target.value);
        }}
      />
      <input
        type="file"
        accept=".json,application/json"
        aria-label="A profile's file"
        onChange={(event) => {
          void read(event.target.files?.[0]);
          event.target.value = "";
        }}
      />
      {wrong ? <span className="field-error">{wrong}</span> : null}
      <span className="field-note">
        How fast engines are: the name of a preset, such as qwen3-32b-h100, or the document that
        treadle calibrate writes. Real engines report none.
      </span>
    </div>
  );
}
