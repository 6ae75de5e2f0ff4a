// One live connection to the journal for the whole tab. It comes back by itself, after the last
// event that it saw, so that nothing is missed and nothing is seen twice.
import { ApiError, call, send, urlOf } from "../api/client";
import { onSessionChange } from "../api/session";
import type { EventView } from "../api/types";
import { journalClock } from "./clock";
import { SseParser } from "./sse";

export type FeedState = "connecting" | "live" | "lost" | "refused";

const KEPT_MAX = 5000;
const BACKOFF_MS = [500, 1000, 2000, 4000, 8000];
/** The daemon sends a comment each 3 s while there are no events; silence for longer is a dead
 *  connection, or a daemon that is stuck. */
const SILENCE_MS = 10_000;

type Listener = (events: EventView[]) => void;

class Feed {
  state: FeedState = "connecting";
  /** The newest events, oldest first. */
  kept: EventView[] = [];
  /** Called when the journal turns out to be another one than before. */
  onReplaced: () => void = () => {};
  private last: number | null = null;
  private attempt = 0;
  private listeners = new Set<Listener>();
  private watchers = new Set<() => void>();
  private abort: AbortController | null = null;
  private wake: (() => void) | null = null;
  private running = false;

  /** Opens the stream, once. */
  start(): void {
    if (this.running) return;
    this.running = true;
    onSessionChange(() => this.restart());
    window.addEventListener("online", () => this.retry());
    void this.run();
  }

  /** Tries again at once. */
  retry = (): void => {
    this.attempt = 0;
    this.wake?.();
  };

  /** Calls back with the events that come in, in batches. */
  listen = (listener: Listener): (() => void) => {
    this.listeners.add(listener);
    return () => this.listeners.delete(listener);
  };

  /** Calls back when the state of the connection changes. */
  watch = (watcher: () => void): (() => void) => {
    this.watchers.add(watcher);
    return () => this.watchers.delete(watcher);
  };

  private forget(): void {
    this.last = null;
    this.kept = [];
    journalClock.reset();
  }

  private restart(): void {
    this.forget();
    this.abort?.abort();
    this.retry();
  }

  private set(state: FeedState): void {
    if (state === this.state) return;
    this.state = state;
    for (const watcher of this.watchers) watcher();
  }

  private async run(): Promise<never> {
    for (;;) {
      try {
        await this.read();
        this.attempt = 0;
      } catch (error) {
        const refused = error instanceof ApiError && error.status > 0 && error.status !== 429;
        this.set(refused ? "refused" : "lost");
      }
      const wait = BACKOFF_MS[Math.min(this.attempt, BACKOFF_MS.length - 1)] ?? 8000;
      this.attempt += 1;
      await new Promise<void>((resolve) => {
        const timer = setTimeout(resolve, wait * (0.8 + Math.random() * 0.4));
        this.wake = () => {
          clearTimeout(timer);
          resolve();
        };
      });
    }
  }

  private async read(): Promise<void> {
    const abort = new AbortController();
    this.abort = abort;
    let timer = setTimeout(() => abort.abort(), SILENCE_MS);
    try {
      if (this.last !== null) await this.forgetIfReplaced(abort.signal);
      if (this.last === null) await this.begin(abort.signal);
      const url = urlOf("/api/v1/stream", {}, { after: this.last ?? undefined });
      const response = await send(url, {
        signal: abort.signal,
        headers: { accept: "text/event-stream" },
      });
      if (!response.body) return;
      this.set("live");
      this.attempt = 0;
      const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
      const parser = new SseParser();
      for (;;) {
        const { value, done } = await reader.read();
        if (done) return;
        clearTimeout(timer);
        timer = setTimeout(() => abort.abort(), SILENCE_MS);
        this.take(parser.push(value).map((message) => JSON.parse(message.data) as EventView));
      }
    } finally {
      clearTimeout(timer);
      abort.abort();
    }
  }

  /** A journal that ends before the last event that was seen is another one. */
  private async forgetIfReplaced(signal: AbortSignal): Promise<void> {
    const page = await call("get", "/api/v1/events", { query: { latest: true, limit: 1 }, signal });
    if ((page.events.at(-1)?.seq ?? 0) >= (this.last ?? 0)) return;
    this.forget();
    this.onReplaced();
  }

  private async begin(signal: AbortSignal): Promise<void> {
    const page = await call("get", "/api/v1/events", {
      query: { latest: true, limit: 500 },
      signal,
    });
    this.last = page.events.at(-1)?.seq ?? 0;
    this.take(page.events);
  }

  private take(events: EventView[]): void {
    const newest = events.at(-1);
    if (!newest) return;
    this.last = newest.seq;
    journalClock.note(newest.at_us, Date.now());
    this.kept = this.kept.concat(events).slice(-KEPT_MAX);
    for (const listener of this.listeners) listener(events);
  }
}

export const feed = new Feed();
