// A recorded trace that a run repeats instead of the journal: its file, and how it is run.
import { useState } from "react";
import { bytes } from "../../format/number";
import { visibleText } from "../../format/text";
import { SchemaFields } from "../../ui/SchemaFields";
import { SHAPE, type Trace } from "./request";

/** The daemon takes no larger requests; a text is longer in one than in its file. */
const BYTES_MAX = 8 * 1024 * 1024;

/** Whether the journal is repeated, or a trace that is yet to be read. */
export function WorkChoice({
  trace,
  onChange,
}: {
  trace: Trace | null;
  onChange: (trace: Trace | null) => void;
}) {
  return (
    <label className="field">
      <span className="field-label">What is repeated</span>
      <select
        className="input"
        value={trace ? "trace" : "journal"}
        onChange={(event) =>
          onChange(event.target.value === "trace" ? { name: "", text: "" } : null)
        }
      >
        <option value="journal">The journal</option>
        <option value="trace">A trace</option>
      </select>
    </label>
  );
}

interface Props {
  trace: Trace;
  texts: Record<string, string>;
  errors: Record<string, string>;
  onTrace: (trace: Trace) => void;
  onText: (key: string, text: string) => void;
}

export function TraceFields({ trace, texts, errors, onTrace, onText }: Props) {
  const [unread, setUnread] = useState<string | null>(null);
  const read = async (file: File | undefined) => {
    if (!file) return;
    const text = file.size > BYTES_MAX ? "" : await file.text();
    const size = Math.max(file.size, new Blob([JSON.stringify(text)]).size);
    const problem =
      size > BYTES_MAX
        ? `takes ${bytes(size)} of a request, which has ${bytes(BYTES_MAX)} at most`
        : text.trim() === ""
          ? "is empty"
          : null;
    setUnread(problem && `${visibleText(file.name, 80)} ${problem}.`);
    if (!problem) onTrace({ name: file.name, text });
  };
  return (
    <>
      <div className="field">
        <label className="field-label" htmlFor="whatif-trace">
          Trace
        </label>
        <input
          id="whatif-trace"
          type="file"
          accept=".jsonl,.ndjson,.json"
          aria-invalid={unread !== null}
          aria-describedby="whatif-trace-note"
          onChange={(event) => {
            void read(event.target.files?.[0]);
            event.target.value = "";
          }}
        />
        {unread ? <span className="field-error">{unread}</span> : null}
        <span id="whatif-trace-note" className="field-note">
          {trace.text === ""
            ? "Recorded programs, a JSON object on each line: docs/traces.md has the format."
            : `${visibleText(trace.name, 80)}, ${bytes(new Blob([trace.text]).size)}.`}
        </span>
      </div>
      <SchemaFields fields={SHAPE} texts={texts} errors={errors} onChange={onText} />
    </>
  );
}
