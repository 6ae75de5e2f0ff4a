// Dialogs. The backdrop is a plain element: Radix' own would add a style element to the page,
// which the content security policy refuses.
import * as Radix from "@radix-ui/react-dialog";
import { type ReactNode, useState } from "react";
import { ApiError } from "../api/client";
import { Icon } from "./Icon";
import { Text } from "./Text";

interface DialogProps {
  open: boolean;
  onOpenChange: (open: boolean) => void;
  title: string;
  description?: ReactNode;
  wide?: boolean;
  children: ReactNode;
}

export function Dialog({ open, onOpenChange, title, description, wide, children }: DialogProps) {
  return (
    <Radix.Root open={open} onOpenChange={onOpenChange}>
      <Radix.Portal>
        <div className="backdrop" />
        <Radix.Content
          className={wide ? "dialog wide" : "dialog"}
          {...(description ? {} : { "aria-describedby": undefined })}
        >
          <header className="dialog-head">
            <Radix.Title className="dialog-title">{title}</Radix.Title>
            <Radix.Close className="button ghost icon-only" aria-label="Close">
              <Icon name="close" />
            </Radix.Close>
          </header>
          {description ? (
            <Radix.Description className="dialog-text">{description}</Radix.Description>
          ) : null}
          {children}
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

interface FootProps {
  error: string | null;
  action: string;
  cancel?: string;
  onCancel: () => void;
  /** Without it the action submits the form that the dialog is. */
  onAction?: () => void;
  danger?: boolean;
  busy?: boolean;
}

/** The end of a dialog: what went wrong, and its two buttons. */
export function DialogFoot(props: FootProps) {
  const { error, action, cancel = "Cancel", onCancel, onAction, danger, busy } = props;
  return (
    <>
      {error ? (
        <p className="field-error" role="alert">
          <Text value={error} max={1000} />
        </p>
      ) : null}
      <footer className="dialog-foot">
        <button type="button" className="button" onClick={onCancel}>
          {cancel}
        </button>
        <button
          type={onAction ? "button" : "submit"}
          className={danger ? "button danger" : "button primary"}
          disabled={busy}
          onClick={onAction}
        >
          {action}
        </button>
      </footer>
    </>
  );
}

interface ConfirmProps {
  title: string;
  text: ReactNode;
  action: string;
  danger?: boolean;
  onConfirm: () => Promise<unknown>;
  trigger: (open: () => void) => ReactNode;
}

/** Asks before something is done that can't be taken back easily. */
export function Confirm({ title, text, action, danger, onConfirm, trigger }: ConfirmProps) {
  const [open, setOpen] = useState(false);
  const [error, setError] = useState<string | null>(null);
  const [busy, setBusy] = useState(false);
  const confirm = async () => {
    setBusy(true);
    setError(null);
    try {
      await onConfirm();
      setOpen(false);
    } catch (cause) {
      setError(cause instanceof ApiError ? cause.message : String(cause));
    } finally {
      setBusy(false);
    }
  };
  return (
    <>
      {trigger(() => setOpen(true))}
      <Dialog open={open} onOpenChange={setOpen} title={title} description={text}>
        <DialogFoot
          error={error}
          action={action}
          onCancel={() => setOpen(false)}
          onAction={() => void confirm()}
          {...(danger ? { danger } : {})}
          busy={busy}
        />
      </Dialog>
    </>
  );
}
