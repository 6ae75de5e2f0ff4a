// The raw events of one program.
import { useState } from "react";
import { PROGRAM_EVENTS_MAX } from "../../api/programQueries";
import type { EventView } from "../../api/types";
import { count } from "../../format/number";
import { DataTable } from "../../ui/DataTable";
import { Dialog } from "../../ui/Dialog";
import { Json } from "../../ui/Json";
import { Empty } from "../../ui/Panel";
import { eventColumns } from "../events/columns";

export function ProgramEvents({ events }: { events: EventView[] }) {
  const [open, setOpen] = useState<EventView | null>(null);
  if (events.length === 0) {
    return (
      <Empty icon="events" title="No events are left">
        <p>
          The journal keeps the newest <code>store.keep_events</code> events.
        </p>
      </Empty>
    );
  }
  return (
    <div className="fixed-table">
      <DataTable
        label="Events of this program"
        rows={events}
        columns={eventColumns.filter((column) => column.id !== "program" && column.id !== "job")}
        keyOf={(row) => String(row.seq)}
        onOpen={setOpen}
        footer={
          events.length >= PROGRAM_EVENTS_MAX
            ? `The first ${count(events.length)} events; the Events page has the rest.`
            : undefined
        }
      />
      <Dialog
        open={open !== null}
        onOpenChange={() => setOpen(null)}
        title={open ? `Event ${open.seq}: ${open.kind}` : ""}
        wide
      >
        {open ? <Json value={open} /> : null}
      </Dialog>
    </div>
  );
}
