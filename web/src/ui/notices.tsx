// Short notices of what was done, read out by screen readers.
import { useSyncExternalStore } from "react";
import { Icon } from "./Icon";
import { Text } from "./Text";

interface Notice {
  id: number;
  tone: "good" | "bad";
  text: string;
}

const SHOWN_MS = 6000;
let notices: Notice[] = [];
let next = 0;
const watchers = new Set<() => void>();

function update(list: Notice[]): void {
  notices = list;
  for (const watcher of watchers) watcher();
}

function dismiss(id: number): void {
  update(notices.filter((notice) => notice.id !== id));
}

/** Shows a notice for a few seconds. */
export function notify(text: string, tone: "good" | "bad" = "good"): void {
  const id = next++;
  update([...notices.slice(-3), { id, tone, text }]);
  setTimeout(() => dismiss(id), SHOWN_MS);
}

export function Notices() {
  const list = useSyncExternalStore(
    (watcher) => {
      watchers.add(watcher);
      return () => watchers.delete(watcher);
    },
    () => notices,
  );
  return (
    <div className="notices" aria-live="polite">
      {list.map((notice) => (
        <div key={notice.id} className={`notice ${notice.tone}`}>
          <Icon name={notice.tone === "good" ? "check" : "warning"} />
          <Text value={notice.text} />
          <button
            type="button"
            className="button ghost icon-only"
            aria-label="Dismiss"
            onClick={() => dismiss(notice.id)}
          >
            <Icon name="close" />
          </button>
        </div>
      ))}
    </div>
  );
}

/** Puts a text on the clipboard and says so. */
export async function copyText(text: string, what: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
    notify(`${what} copied.`);
  } catch {
    notify(`${what} could not be copied: the browser does not allow it here.`, "bad");
  }
}

/** Lets the browser save a text as a file. */
export function saveText(name: string, text: string, type = "application/json"): void {
  const url = URL.createObjectURL(new Blob([text], { type }));
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
