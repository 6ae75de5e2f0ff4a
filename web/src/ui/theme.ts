// Dark and light: the system's choice unless the user makes another one.
import { useSyncExternalStore } from "react";

export type Theme = "auto" | "light" | "dark";

const KEY = "treadle.theme";
const watchers = new Set<() => void>();
const dark = window.matchMedia("(prefers-color-scheme: dark)");
let theme: Theme = read();
let version = 0;
/** Cache of resolved colours since the last change: resolving is slow in browsers. */
const colors = new Map<string, string>();

function read(): Theme {
  try {
    const stored = localStorage.getItem(KEY);
    return stored === "light" || stored === "dark" ? stored : "auto";
  } catch {
    return "auto";
  }
}

function apply(): void {
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  version += 1;
  colors.clear();
  for (const watcher of watchers) watcher();
}

apply();
dark.addEventListener("change", apply);

/** Chooses a theme and remembers it. */
export function setTheme(next: Theme): void {
  theme = next;
  try {
    localStorage.setItem(KEY, next);
  } catch {
    // It lasts until the page is left.
  }
  apply();
}

function watch(watcher: () => void): () => void {
  watchers.add(watcher);
  return () => watchers.delete(watcher);
}

/** The theme that was chosen. */
export function useTheme(): Theme {
  return useSyncExternalStore(watch, () => theme);
}

/** A number that changes whenever colours do: what is painted on a canvas depends on it. */
export function useColorVersion(): number {
  return useSyncExternalStore(watch, () => version);
}

let probe: HTMLElement | null = null;

/** The colour that a token has at present, for canvases. */
export function colorOf(token: string): string {
  return resolved(`var(--${token})`);
}

/** The colour of a token, softened for large areas. */
export function fillOf(token: string): string {
  return resolved(`color-mix(in srgb, var(--${token}) 74%, var(--surface))`);
}

function resolved(color: string): string {
  const known = colors.get(color) ?? computed(color);
  colors.set(color, known);
  return known;
}

function computed(color: string): string {
  if (!probe) {
    probe = document.createElement("span");
    probe.hidden = true;
    document.body.append(probe);
  }
  probe.style.color = color;
  return getComputedStyle(probe).color;
}
