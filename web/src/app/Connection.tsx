// Whether the console hears from the daemon.
import { feed } from "../live/feed";
import { useFeedState } from "../live/hooks";

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
