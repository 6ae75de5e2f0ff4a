// Panels, figures, and empty, loading and failed states.
import type { ReactNode } from "react";
import { ApiError } from "../api/client";
import { Icon, type IconName } from "./Icon";
import { Text } from "./Text";

interface PanelProps {
  title: ReactNode;
  note?: ReactNode;
  actions?: ReactNode;
  flush?: boolean;
  children: ReactNode;
}

export function Panel({ title, note, actions, flush = false, children }: PanelProps) {
  return (
    <section className="panel">
      <header className="panel-head">
        <h2>{title}</h2>
        {note ? <span className="panel-note">{note}</span> : null}
        {actions ? <div className="panel-actions">{actions}</div> : null}
      </header>
      <div className={flush ? "panel-body flush" : "panel-body"}>{children}</div>
    </section>
  );
}

export function PageHead({
  title,
  note,
  children,
}: {
  title: ReactNode;
  note?: ReactNode;
  children?: ReactNode;
}) {
  return (
    <header className="page-head">
      <div className="page-title">
        <h1>{title}</h1>
        {note ? <p className="soft">{note}</p> : null}
      </div>
      {children ? <div className="page-actions">{children}</div> : null}
    </header>
  );
}

export function Stat({
  label,
  value,
  unit,
  note,
}: {
  label: string;
  value: ReactNode;
  unit?: string;
  note?: ReactNode;
}) {
  return (
    <div className="stat">
      <dt>{label}</dt>
      <dd>
        <span className="stat-value">{value}</span>
        {unit ? <span className="stat-unit">{unit}</span> : null}
        {note ? <span className="stat-note">{note}</span> : null}
      </dd>
    </div>
  );
}

/** Nothing is there yet: what it would be, and how to get it. */
export function Empty({
  icon,
  title,
  children,
}: {
  icon: IconName;
  title: string;
  children?: ReactNode;
}) {
  return (
    <div className="empty">
      <Icon name={icon} />
      <h2>{title}</h2>
      {children}
    </div>
  );
}

/** A request failed: why, and what to do. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const api = error instanceof ApiError ? error : null;
  return (
    <div className="failure" role="alert">
      <Icon name="warning" />
      <div>
        <p>
          <Text value={error instanceof Error ? error.message : String(error)} max={1000} />
        </p>
        <p className="dim">{adviceFor(api)}</p>
      </div>
      {retry ? (
        <button type="button" className="button" onClick={retry}>
          Try again
        </button>
      ) : null}
    </div>
  );
}

function adviceFor(error: ApiError | null): string {
  if (!error) return "";
  if (error.status === 0) return "The console tries again by itself once the daemon is back.";
  if (error.status === 401) return "Sign in, at the bottom of the navigation.";
  if (error.status === 403) return "Your token has too small a scope for this.";
  return `Code ${error.code}, HTTP ${error.status}.`;
}

/** Grey bars where content will be. */
export function Loading({ rows = 5 }: { rows?: number }) {
  return (
    <div className="loading" role="status">
      <span className="visually-hidden">Loading</span>
      {Array.from({ length: rows }, (_, at) => (
        // biome-ignore lint/suspicious/noArrayIndexKey: the bars are all the same
        <div key={at} className="loading-bar" />
      ))}
    </div>
  );
}

/** A command to copy into a terminal. */
export function Command({ children }: { children: string }) {
  return (
    // biome-ignore lint/a11y/noNoninteractiveTabindex: it may scroll sideways
    <pre className="command" tabIndex={0}>
      {children}
    </pre>
  );
}
