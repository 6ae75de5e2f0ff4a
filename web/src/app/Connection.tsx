// The state of the connection to the daemon, and of the session.
import { Link, useRouterState } from "@tanstack/react-router";
import { useSyncExternalStore } from "react";
import { hasEnded, onSessionChange } from "../api/session";
import { feed } from "../live/feed";
import { useFeedState } from "../live/hooks";
import { Icon } from "../ui/Icon";
import { useHere } from "./here";

const TEXTS = {
  connecting: "Connecting",
  live: "Live",
  lost: "Connection lost",
  refused: "Not signed in",
} as const;

export function Connection() {
  const state = useFeedState();
  return (
    <div className={`connection ${state}`} role="status">
      <span className="pulse" aria-hidden="true" />
      {TEXTS[state]}
      {state === "lost" ? (
        <button type="button" className="button ghost small" onClick={feed.retry}>
          Try now
        </button>
      ) : null}
    </div>
  );
}

/** Says that the daemon ended the session. */
export function SessionEnded() {
  const ended = useSyncExternalStore(onSessionChange, hasEnded);
  const then = useHere();
  const path = useRouterState({ select: (state) => state.location.pathname });
  if (!ended) return null;
  return (
    <div className="banner" role="alert">
      <Icon name="warning" />
      <span>Your token is no longer accepted: it was revoked, or has expired.</span>
      {path === "/sign-in" ? null : (
        <Link to="/sign-in" search={then ? { then } : {}} className="button small">
          Sign in again
        </Link>
      )}
    </div>
  );
}
