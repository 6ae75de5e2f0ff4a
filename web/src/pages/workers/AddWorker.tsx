// Registers an engine.
import { type FormEvent, useState } from "react";
import { ApiError, call } from "../../api/client";
import { queryClient } from "../../api/queries";
import { Dialog, DialogFoot } from "../../ui/Dialog";
import { notify } from "../../ui/notices";

const KINDS = ["auto", "vllm", "sglang", "llamacpp", "openai"];
const ROLES = ["both", "prefill", "decode"];

export function AddWorker({
  open,
  onOpenChange,
}: {
  open: boolean;
  onOpenChange: (open: boolean) => void;
}) {
  const [url, setUrl] = useState("");
  const [kind, setKind] = useState("auto");
  const [capacity, setCapacity] = useState("");
  const [hardware, setHardware] = useState("");
  const [role, setRole] = useState("both");
  const [error, setError] = useState<string | null>(null);
  const submit = async (event: FormEvent) => {
    event.preventDefault();
    setError(null);
    try {
      const body = {
        url: url.trim(),
        kind: kind === "auto" ? null : kind,
        capacity_tokens: capacity === "" ? null : Number(capacity),
        class: hardware.trim() === "" ? null : hardware.trim(),
        role: role === "both" ? null : role,
      };
      const answer = await call("post", "/api/v1/workers", { body });
      notify(answer.added ? `Worker ${answer.worker_id} was added.` : "It was registered before.");
      await queryClient.invalidateQueries({ queryKey: ["workers"] });
      onOpenChange(false);
    } catch (cause) {
      setError(cause instanceof ApiError ? cause.message : String(cause));
    }
  };
  return (
    <Dialog
      open={open}
      onOpenChange={onOpenChange}
      title="Add a worker"
      description="The daemon connects to it, and sends it prompts."
    >
      <form className="form" onSubmit={(event) => void submit(event)}>
        <label className="field">
          <span className="field-label">URL</span>
          <input
            className="input mono"
            type="url"
            required
            placeholder="http://gpu-1:8000"
            value={url}
            onChange={(event) => setUrl(event.target.value)}
          />
        </label>
        <div className="form-row">
          <label className="field">
            <span className="field-label">Kind</span>
            <select
              className="input"
              value={kind}
              onChange={(event) => setKind(event.target.value)}
            >
              {KINDS.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </label>
          <label className="field">
            <span className="field-label">KV memory, tokens</span>
            <input
              className="input"
              inputMode="numeric"
              pattern="\d*"
              placeholder="read from the engine"
              value={capacity}
              onChange={(event) => setCapacity(event.target.value)}
            />
          </label>
          <label className="field">
            <span className="field-label">Class of hardware</span>
            <input
              className="input"
              maxLength={64}
              placeholder="such as h20"
              value={hardware}
              onChange={(event) => setHardware(event.target.value)}
            />
          </label>
          <label className="field">
            <span className="field-label">Role</span>
            <select
              className="input"
              value={role}
              onChange={(event) => setRole(event.target.value)}
            >
              {ROLES.map((one) => (
                <option key={one}>{one}</option>
              ))}
            </select>
          </label>
        </div>
        <DialogFoot error={error} action="Add" onCancel={() => onOpenChange(false)} />
      </form>
    </Dialog>
  );
}
