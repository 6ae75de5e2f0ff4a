// The part of the journal that a run repeats.
import { useQuery } from "@tanstack/react-query";
import type { InputHTMLAttributes } from "react";
import { journalExtent, memory } from "../../api/queries";
import { count } from "../../format/number";
import { visibleText } from "../../format/text";
import { clockTime, fullTime } from "../../format/time";
import { localTime, type Span, type WindowForm } from "../../model/window";
import { Choice } from "../../ui/Choice";

const SPANS: [Span, string][] = [
  ["last", "the last minutes"],
  ["times", "from one time to another"],
  ["events", "by numbers of events"],
  ["all", "everything"],
];
/** What the fields of times begin with. */
const MINUTES = 30;

interface Props {
  form: WindowForm;
  errors: Partial<Record<keyof WindowForm, string>>;
  onChange: (form: WindowForm) => void;
}

export function WindowFields({ form, errors, onChange }: Props) {
  const { data: extent } = useQuery(journalExtent);
  const { data: memoryData } = useQuery(memory);
  const jobs = new Set((memoryData?.jobs ?? []).map((one) => one.job));
  const set = (changes: Partial<WindowForm>) => onChange({ ...form, ...changes });
  const choose = (span: Span) => {
    if (span !== "times" || form.fromTime || form.toTime || !extent) return set({ span });
    const from = Math.max(extent.firstUs, extent.lastUs - MINUTES * 60e6);
    set({ span, fromTime: localTime(from), toTime: localTime(extent.lastUs) });
  };
  const field = (key: keyof WindowForm, label: string, more: InputHTMLAttributes<HTMLElement>) => (
    <label className="field">
      <span className="field-label">{label}</span>
      <input
        className="input"
        value={form[key]}
        aria-invalid={errors[key] !== undefined}
        aria-describedby={errors[key] ? `window-${key}` : undefined}
        onChange={(event) => set({ [key]: event.target.value })}
        {...more}
      />
      {errors[key] ? (
        <span id={`window-${key}`} className="field-error">
          {errors[key]}
        </span>
      ) : null}
    </label>
  );
  const time = { type: "datetime-local", step: 1 };
  const number = { inputMode: "numeric" as const };
  return (
    <>
      <label className="field">
        <span className="field-label">Window</span>
        <select
          className="input"
          value={form.span}
          onChange={(event) => choose(event.target.value as Span)}
        >
          {SPANS.map(([span, label]) => (
            <option key={span} value={span}>
              {label}
            </option>
          ))}
        </select>
        {errors.span ? <span className="field-error">{errors.span}</span> : null}
      </label>
      {form.span === "last" ? field("minutes", "Minutes", { inputMode: "decimal" }) : null}
      {form.span === "times" ? (
        <>
          {field("fromTime", "From", time)}
          {field("toTime", "To", time)}
        </>
      ) : null}
      {form.span === "events" ? (
        <div className="form-row">
          {field("fromSeq", "First event", { ...number, placeholder: "the journal's first" })}
          {field("toSeq", "Last event", { ...number, placeholder: "the journal's last" })}
        </div>
      ) : null}
      {extent ? (
        <p className="field-note">
          The journal has events {count(extent.firstSeq)} to {count(extent.lastSeq)}, from{" "}
          <span title={fullTime(extent.firstUs)}>{clockTime(extent.firstUs)}</span> to{" "}
          <span title={fullTime(extent.lastUs)}>{clockTime(extent.lastUs)}</span> on its own clock.
        </p>
      ) : null}
      <div className="field">
        <span className="field-label">Job</span>
        <Choice
          label="Job"
          all="All jobs"
          value={form.job}
          options={[...jobs].map((job) => [job, visibleText(job, 60)])}
          onChange={(job) => set({ job })}
        />
      </div>
    </>
  );
}
