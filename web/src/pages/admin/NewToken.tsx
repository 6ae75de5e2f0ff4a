// Makes a token.
import { type FormEvent, useState } from "react";
import { ApiError, call } from "../../api/client";
import { queryClient } from "../../api/queries";
import type { Scope } from "../../api/types";
import { Dialog, DialogFoot } from "../../ui/Dialog";

const SCOPES: Scope[] = ["viewer", "job", "operator", "admin"];
const DAY_S = 86_400;

interface Props {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  onSecret: (secret: string) => void;
}

export function NewToken({ open, onOpenChange, onSecret }: Props) {
  const [name, setName] = useState("");
  const [scope, setScope] = useState<Scope>("viewer");
  const [days, setDays] = useState("30");
  const [error, setError] = useState<string | null>(null);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setError(null);
    try {
      const expires_in_s = days === "" ? null : Number(days) * DAY_S;
      const answer = await call("post", "/api/v1/tokens", { body: { name, scope, expires_in_s } });
      await queryClient.invalidateQueries({ queryKey: ["tokens"] });
      onOpenChange(false);
      setName("");
      if (answer.secret) onSecret(answer.secret);
    } catch (cause) {
      setError(cause instanceof ApiError ? cause.message : String(cause));
    }
  };
  return (
    <Dialog open={open} onOpenChange={onOpenChange} title="Make a token">
      <form className="form" onSubmit={(event) => void submit(event)}>
        <label className="field">
          <span className="field-label">Name</span>
          <input
            className="input"
            required
            value={name}
            onChange={(event) => setName(event.target.value)}
          />
        </label>
        <div className="form-row">
          <label className="field">
            <span className="field-label">Scope</span>
            <select
              className="input"
              value={scope}
              onChange={(event) => setScope(event.target.value as Scope)}
            >
              {SCOPES.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </label>
          <label className="field">
            <span className="field-label">Good for, in days</span>
            <input
              className="input"
              type="number"
              min="1"
              placeholder="for ever"
              value={days}
              onChange={(event) => setDays(event.target.value)}
            />
          </label>
        </div>
        <DialogFoot error={error} action="Make it" onCancel={() => onOpenChange(false)} />
      </form>
    </Dialog>
  );
}
