// Uploads a policy: the file is checked first, and every check is shown.
import { useNavigate } from "@tanstack/react-router";
import { type DragEvent, useId, useRef, useState } from "react";
import { ApiError, send } from "../../api/client";
import { queryClient } from "../../api/queries";
import type { CheckFailure, CheckReport, Pushed } from "../../api/types";
import { bytes } from "../../format/number";
import { visibleText } from "../../format/text";
import { Dialog } from "../../ui/Dialog";
import { Icon } from "../../ui/Icon";
import { notify } from "../../ui/notices";
import { Failure } from "../../ui/Panel";
import { CheckList } from "./CheckList";

type State =
  | { step: "choose" }
  | { step: "checking"; file: File }
  | { step: "passed"; file: File; report: CheckReport }
  | { step: "refused"; file: File; refusal: CheckFailure }
  | { step: "failed"; error: unknown };

export function UploadDialog({
  open,
  onOpenChange,
}: {
  open: boolean;
  onOpenChange: (open: boolean) => void;
}) {
  const [state, setState] = useState<State>({ step: "choose" });
  const navigate = useNavigate();
  const close = () => {
    setState({ step: "choose" });
    onOpenChange(false);
  };
  const check = async (file: File) => {
    setState({ step: "checking", file });
    try {
      const response = await sendFile("/api/v1/plugins/check", file);
      setState({ step: "passed", file, report: (await response.json()) as CheckReport });
    } catch (error) {
      const refusal = error instanceof ApiError ? (error.details.refusal as CheckFailure) : null;
      setState(refusal ? { step: "refused", file, refusal } : { step: "failed", error });
    }
  };
  const upload = async (file: File) => {
    try {
      const response = await sendFile("/api/v1/plugins", file);
      const plugin = (await response.json()) as Pushed;
      notify(plugin.new ? `${plugin.name} was uploaded.` : `${plugin.name} was here before.`);
      await queryClient.invalidateQueries({ queryKey: ["plugins"] });
      close();
      await navigate({ to: "/policies/$plugin", params: { plugin: plugin.digest } });
    } catch (error) {
      setState({ step: "failed", error });
    }
  };
  return (
    <Dialog
      open={open}
      onOpenChange={(next) => (next ? onOpenChange(true) : close())}
      title="Upload a policy"
      description="A WebAssembly component, as treadle plugin build makes it. It is checked before it is stored."
      wide
    >
      <DropZone onFile={(file) => void check(file)} />
      {state.step === "failed" ? <Failure error={state.error} /> : null}
      {"file" in state ? (
        <p className="soft">
          <span className="mono">{visibleText(state.file.name, 80)}</span>, {bytes(state.file.size)}
        </p>
      ) : null}
      {state.step === "checking" ? <p role="status">Checking…</p> : null}
      {state.step === "refused" ? <CheckList report={null} refusal={state.refusal} /> : null}
      {state.step === "passed" ? <CheckList report={state.report} refusal={null} /> : null}
      <footer className="dialog-foot">
        <button type="button" className="button" onClick={close}>
          Close
        </button>
        <button
          type="button"
          className="button primary"
          disabled={state.step !== "passed"}
          onClick={() => state.step === "passed" && void upload(state.file)}
        >
          Store it
        </button>
      </footer>
    </Dialog>
  );
}

function sendFile(url: string, file: File): Promise<Response> {
  return send(url, { method: "POST", body: file, headers: { "content-type": "application/wasm" } });
}

function DropZone({ onFile }: { onFile: (file: File) => void }) {
  const [over, setOver] = useState(false);
  const input = useRef<HTMLInputElement>(null);
  const id = useId();
  const onDrop = (event: DragEvent) => {
    event.preventDefault();
    setOver(false);
    const file = event.dataTransfer.files[0];
    if (file) onFile(file);
  };
  return (
    <label
      htmlFor={id}
      className={over ? "drop over" : "drop"}
      onDragOver={(event) => {
        event.preventDefault();
        setOver(true);
      }}
      onDragLeave={() => setOver(false)}
      onDrop={onDrop}
    >
      <Icon name="upload" />
      <span>
        Drop a <code>.wasm</code> file here, or <span className="link">choose one</span>
      </span>
      <input
        id={id}
        ref={input}
        className="visually-hidden"
        type="file"
        accept=".wasm,application/wasm"
        onChange={(event) => {
          const file = event.target.files?.[0];
          if (file) onFile(file);
          event.target.value = "";
        }}
      />
    </label>
  );
}
