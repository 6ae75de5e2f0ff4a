// The journal as it grows, and what was in it before.
import { useNavigate, useSearch } from "@tanstack/react-router";
import { useCallback, useEffect, useState } from "react";
import { ApiError, call } from "../../api/client";
import type { EventView } from "../../api/types";
import { count, plural } from "../../format/number";
import { fullTime } from "../../format/time";
import { useFeed } from "../../live/hooks";
import { DataTable } from "../../ui/DataTable";
import { Dialog } from "../../ui/Dialog";
import { Icon } from "../../ui/Icon";
import { Json } from "../../ui/Json";
import { Empty, Failure, Loading, PageHead } from "../../ui/Panel";
import { eventColumns } from "./columns";
import { EventFilters, type EventSearch } from "./EventFilters";

const KEPT_MAX = 20_000;
const PAGE = 500;

export function Events() {
  const search = useSearch({ from: "/events" });
  const navigate = useNavigate({ from: "/events" });
  const [paused, setPaused] = useState(false);
  const { events, error, loading, more, older, held } = useTail(search, paused);
  const open = events.find((event) => String(event.seq) === search.seq) ?? null;
  const setOpen = (event: EventView | null) =>
    void navigate({
      search: (old) => ({ ...old, seq: event ? String(event.seq) : undefined }),
      replace: true,
    });
  return (
    <div className="page fill">
      <PageHead title="Events" note="The journal: every input of the scheduler, in one order.">
        <button
          type="button"
          className="button"
          aria-pressed={paused}
          onClick={() => setPaused(!paused)}
        >
          <Icon name={paused ? "play" : "pause"} />
          {paused ? `Go on (${count(held)} new)` : "Pause"}
        </button>
      </PageHead>
      <EventFilters search={search} />
      {error ? <Failure error={error} /> : null}
      {loading ? (
        <Loading rows={8} />
      ) : events.length === 0 ? (
        <Empty icon="events" title="No event matches">
          <p>Events that match appear here as they happen. Clear a filter to see others.</p>
        </Empty>
      ) : (
        <DataTable
          label="Events, newest first"
          rows={events}
          columns={eventColumns}
          keyOf={(row) => String(row.seq)}
          selected={search.seq}
          onOpen={setOpen}
          onEnd={more ? older : noop}
          footer={
            more
              ? `${plural(events.length, "event")} loaded; scroll for older ones.`
              : "That is the beginning of what the journal keeps."
          }
        />
      )}
      <Dialog
        open={open !== null}
        onOpenChange={() => setOpen(null)}
        title={open ? `Event ${open.seq}: ${open.kind}` : ""}
        description={open ? fullTime(open.at_us) : undefined}
        wide
      >
        {open ? <Json value={open} /> : null}
      </Dialog>
    </div>
  );
}

function noop(): void {}

function matches(event: EventView, search: EventSearch): boolean {
  if (search.job && event.job !== search.job) return false;
  if (search.program && event.program !== search.program) return false;
  if (search.kind) return event.kind === search.kind;
  return search.timers === "shown" || event.kind !== "timer_fired";
}

/** The newest events first, with those that come in and those that are scrolled to. */
function useTail(search: EventSearch, paused: boolean) {
  const [events, setEvents] = useState<EventView[]>([]);
  const [waiting, setWaiting] = useState<EventView[]>([]);
  const [error, setError] = useState<unknown>(null);
  const [loading, setLoading] = useState(true);
  const [cursor, setCursor] = useState<number | null>(null);
  const { job, program, kind, timers } = search;

  const read = useCallback(
    async (before: number | null) => {
      const page = await call("get", "/api/v1/events", {
        query: { job, program, kind, before, sort: "-seq", limit: PAGE },
      });
      const last = page.events.at(-1);
      setCursor(page.events.length < PAGE || !last ? null : last.seq);
      return page.events.filter((event) => matches(event, { job, program, kind, timers }));
    },
    [job, program, kind, timers],
  );
  useEffect(() => {
    let current = true;
    setLoading(true);
    setEvents([]);
    setWaiting([]);
    setError(null);
    read(null)
      .then((page) => current && setEvents(page))
      .catch((cause) => current && setError(cause))
      .finally(() => current && setLoading(false));
    return () => {
      current = false;
    };
  }, [read]);

  useFeed((incoming) => {
    const wanted = incoming.filter((event) => matches(event, search)).reverse();
    if (wanted.length > 0) setWaiting((before) => [...wanted, ...before].slice(0, KEPT_MAX));
  });
  useEffect(() => {
    if (paused || loading || waiting.length === 0) return;
    setWaiting([]);
    setEvents((before) => merged(waiting, before));
  }, [paused, loading, waiting]);

  const older = useCallback(() => {
    if (cursor === null) return;
    setCursor(null);
    read(cursor)
      .then((page) => setEvents((before) => [...before, ...page].slice(0, KEPT_MAX)))
      .catch((cause) => setError(cause instanceof ApiError ? cause : String(cause)));
  }, [cursor, read]);
  const more = cursor !== null && events.length < KEPT_MAX;
  return { events, error, loading, more, older, held: waiting.length };
}

function merged(newer: EventView[], older: EventView[]): EventView[] {
  const newest = older[0]?.seq ?? -1;
  return [...newer.filter((event) => event.seq > newest), ...older].slice(0, KEPT_MAX);
}
