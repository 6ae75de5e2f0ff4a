// The command palette: pages, workers, policies, training jobs, programs and a few commands, by
// keyboard.
import * as Radix from "@radix-ui/react-dialog";
import { keepPreviousData, useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, useEffect, useId, useMemo, useState } from "react";
import { call } from "../api/client";
import { plugins, workers } from "../api/queries";
import { isSignedIn, signOut } from "../api/session";
import { trainingJobs } from "../api/training";
import { visibleText } from "../format/text";
import { Icon, type IconName } from "../ui/Icon";
import { setTheme } from "../ui/theme";
import { useHere } from "./here";
import { PAGES } from "./pages";
import { tour } from "./tour/state";

interface Entry {
  id: string;
  icon: IconName;
  label: string;
  hint: string;
  run: () => void;
}

const SHOWN_MAX = 12;

export function Palette({
  open,
  onOpenChange,
}: {
  open: boolean;
  onOpenChange: (open: boolean) => void;
}) {
  return (
    <Radix.Root open={open} onOpenChange={onOpenChange}>
      <Radix.Portal>
        <div className="backdrop" />
        <Radix.Content className="palette" aria-describedby={undefined}>
          <Radix.Title className="visually-hidden">Find or go to</Radix.Title>
          <PaletteList close={() => onOpenChange(false)} />
        </Radix.Content>
      </Radix.Portal>
    </Radix.Root>
  );
}

function PaletteList({ close }: { close: () => void }) {
  const [query, setQuery] = useState("");
  const [at, setAt] = useState(0);
  const list = useId();
  const entries = useEntries(query);
  const chosen = entries[Math.min(at, entries.length - 1)];
  const run = (entry: Entry | undefined) => {
    if (!entry) return;
    close();
    entry.run();
  };
  const onKey = (event: KeyboardEvent) => {
    const move = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (move !== undefined) {
      event.preventDefault();
      setAt((before) => (before + move + entries.length) % Math.max(1, entries.length));
    }
    if (event.key === "Enter") {
      // The opened element may take the focus, and must not be pressed by the same key.
      event.preventDefault();
      run(chosen);
    }
  };
  return (
    <>
      <div className="palette-input">
        <Icon name="search" />
        <input
          type="text"
          role="combobox"
          aria-expanded="true"
          aria-controls={list}
          aria-activedescendant={chosen ? `${list}-${chosen.id}` : undefined}
          aria-label="Find or go to"
          placeholder="Page, worker, policy, training job, or part of a program's name"
          value={query}
          onChange={(event) => {
            setQuery(event.target.value);
            setAt(0);
          }}
          onKeyDown={onKey}
        />
      </div>
      <div role="listbox" id={list} aria-label="Results" className="palette-list">
        {entries.map((entry) => (
          <div
            key={entry.id}
            id={`${list}-${entry.id}`}
            role="option"
            tabIndex={-1}
            aria-selected={entry === chosen}
            className="palette-entry"
            onClick={() => run(entry)}
            onKeyDown={onKey}
            onMouseMove={() => setAt(entries.indexOf(entry))}
          >
            <Icon name={entry.icon} />
            <span className="clip">{entry.label}</span>
            <span className="dim clip">{entry.hint}</span>
          </div>
        ))}
      </div>
    </>
  );
}

function useEntries(query: string): Entry[] {
  const navigate = useNavigate();
  const then = useHere();
  const { data: workerData } = useQuery({ ...workers, refetchInterval: false });
  const { data: pluginData } = useQuery(plugins);
  const { data: trainingData } = useQuery({ ...trainingJobs, refetchInterval: false });
  const all = useMemo(() => {
    const pages: Entry[] = PAGES.map((page) => ({
      id: `page-${page.label.replace(/\W/g, "")}`,
      icon: page.icon,
      label: page.label,
      hint: page.about,
      run: () => void navigate({ to: page.to }),
    }));
    const workerEntries: Entry[] = (workerData?.workers ?? []).map((worker) => ({
      id: `worker-${worker.id}`,
      icon: "workers",
      label: `Worker ${worker.id}`,
      hint: visibleText(worker.url),
      run: () => void navigate({ to: "/workers", search: { worker: worker.id } }),
    }));
    const policyEntries: Entry[] = (pluginData?.plugins ?? []).map((plugin) => ({
      id: `policy-${plugin.digest.slice(0, 12)}`,
      icon: "policies",
      label: visibleText(`${plugin.name}@${plugin.version}`),
      hint: plugin.world,
      run: () => void navigate({ to: "/policies/$plugin", params: { plugin: plugin.digest } }),
    }));
    const trainingEntries: Entry[] = (trainingData?.jobs ?? []).map(({ job }, at) => ({
      id: `training-${at}`,
      icon: "training",
      label: visibleText(job),
      hint: "training job",
      run: () => void navigate({ to: "/training/$job", params: { job }, search: {} }),
    }));
    return [
      ...pages,
      ...workerEntries,
      ...policyEntries,
      ...trainingEntries,
      ...commands(() => void navigate({ to: "/sign-in", search: then ? { then } : {} })),
    ];
  }, [navigate, then, workerData, pluginData, trainingData]);
  const words = query.toLowerCase().trim().split(/\s+/).filter(Boolean);
  const found = all.filter((entry) =>
    words.every((word) => `${entry.label} ${entry.hint}`.toLowerCase().includes(word)),
  );
  const programs = useProgramsLike(query.trim());
  return [...found.slice(0, SHOWN_MAX - programs.length), ...programs];
}

const FOUND_MAX = 5;
/** Pause in typing before the store is queried. */
const TYPED_MS = 200;

/** Programs on record with this in their names, the latest first, and whichever has exactly this name. */
function useProgramsLike(name: string): Entry[] {
  const navigate = useNavigate();
  const typed = useSettled(name, TYPED_MS);
  const { data } = useQuery({
    queryKey: ["programs-like", typed],
    queryFn: ({ signal }) =>
      call("get", "/api/v1/programs", { query: { search: typed, limit: FOUND_MAX + 1 }, signal }),
    enabled: typed !== "",
    placeholderData: keepPreviousData,
    retry: false,
  });
  if (name === "") return [];
  const found = (data?.programs ?? [])
    .map((program) => program.program_id)
    .filter((program) => program !== name && program.toLowerCase().includes(name.toLowerCase()));
  const entry = (program: string, hint: string, id: string): Entry => ({
    id,
    icon: "programs",
    label: visibleText(program),
    hint,
    run: () => void navigate({ to: "/programs/$program", params: { program } }),
  });
  return [
    entry(name, "the program of this name", "exact"),
    ...found.slice(0, FOUND_MAX).map((program, at) => entry(program, "program", `program-${at}`)),
  ];
}

/** A value once it has not changed for a while. */
function useSettled(value: string, ms: number): string {
  const [settled, setSettled] = useState(value);
  useEffect(() => {
    const timer = setTimeout(() => setSettled(value), ms);
    return () => clearTimeout(timer);
  }, [value, ms]);
  return settled;
}

function commands(goToSignIn: () => void): Entry[] {
  const theme = (name: "auto" | "light" | "dark", label: string, icon: IconName): Entry => ({
    id: `theme-${name}`,
    icon,
    label,
    hint: "theme",
    run: () => setTheme(name),
  });
  return [
    {
      id: "tour",
      icon: "help",
      label: "Take the guided tour",
      hint: "of three pages",
      run: tour.start,
    },
    theme("dark", "Use the dark theme", "moon"),
    theme("light", "Use the light theme", "sun"),
    theme("auto", "Use the system's theme", "auto"),
    isSignedIn()
      ? {
          id: "sign-out",
          icon: "admin",
          label: "Sign out",
          hint: "of this browser",
          run: () => void signOut(),
        }
      : {
          id: "sign-in",
          icon: "admin",
          label: "Sign in",
          hint: "in this browser",
          run: goToSignIn,
        },
  ];
}
