// The fields of a form that stands for an object of single values.
import { visibleText } from "../format/text";
import type { Field } from "../model/schemaForm";
import { Text } from "./Text";

interface Props {
  fields: Field[];
  texts: Record<string, string>;
  errors: Record<string, string>;
  onChange: (key: string, text: string) => void;
}

export function SchemaFields({ fields, texts, errors, onChange }: Props) {
  if (fields.length === 0) return <p className="soft">This policy has nothing to configure.</p>;
  return (
    <div className="form">
      {fields.map((field) => (
        <SchemaField
          key={field.key}
          field={field}
          text={texts[field.key] ?? ""}
          error={errors[field.key]}
          onChange={(text) => onChange(field.key, text)}
        />
      ))}
    </div>
  );
}

function SchemaField({
  field,
  text,
  error,
  onChange,
}: {
  field: Field;
  text: string;
  error: string | undefined;
  onChange: (text: string) => void;
}) {
  const initial =
    field.initial === undefined || field.initial === null ? "" : visibleText(String(field.initial));
  const id = `config-${field.key.replace(/\W/g, "-")}`;
  const shared = {
    id,
    className: "input",
    value: text,
    "aria-invalid": error !== undefined,
    "aria-describedby": `${id}-note`,
  };
  const choices = field.kind === "boolean" ? ["true", "false"] : field.choices;
  return (
    <div className="config-field">
      <label className="field-label mono" htmlFor={id}>
        <Text value={field.key} max={80} />
      </label>
      {field.kind === "choice" || field.kind === "boolean" ? (
        <select {...shared} onChange={(event) => onChange(event.target.value)}>
          {field.required && text !== "" ? null : (
            <option value="">{initial === "" ? "default" : `default (${initial})`}</option>
          )}
          {choices.map((choice) => (
            <option key={choice} value={choice}>
              {visibleText(choice)}
            </option>
          ))}
        </select>
      ) : (
        <input
          {...shared}
          inputMode={field.kind === "text" ? "text" : "decimal"}
          placeholder={initial === "" ? "default" : initial}
          onChange={(event) => onChange(event.target.value)}
        />
      )}
      <p id={`${id}-note`} className="field-note">
        {error ? <span className="field-error">{error} </span> : null}
        <Text value={field.description} max={600} /> {boundsOf(field)}
      </p>
    </div>
  );
}

function boundsOf(field: Field): string {
  const { min, max } = field;
  if (min !== undefined && max !== undefined) return `${min} to ${max}.`;
  if (min !== undefined) return `At least ${min}.`;
  return max === undefined ? "" : `At most ${max}.`;
}

export function JsonField({
  value,
  onChange,
}: {
  value: string;
  onChange: (value: string) => void;
}) {
  return (
    <label className="field">
      <span className="field-label">
        JSON, as this policy's schema has more than a form can show (see Component)
      </span>
      <textarea
        className="input"
        rows={10}
        spellCheck={false}
        value={value}
        onChange={(event) => onChange(event.target.value)}
      />
    </label>
  );
}
