// The command palette: pages, workers, policies, programs and a few commands, by keyboard.
import * as Radix from "@radix-ui/react-dialog";
import { useQuery } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { type KeyboardEvent, useId, useMemo, useState } from "react";
import { plugins, workers } from "../api/queries";
import { isSignedIn, signOut } from "../api/session";
import { visibleText } from "../format/text";
import { feed } from "../live/feed";
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
      // What it opens may take the focus, and must not be pressed by the same key.
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
          placeholder="Page, worker, policy, or the whole name of a program"
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
    return [
      ...pages,
      ...workerEntries,
      ...policyEntries,
      ...commands(() => void navigate({ to: "/sign-in", search: then ? { then } : {} })),
    ];
  }, [navigate, then, workerData, pluginData]);
  const words = query.toLowerCase().trim().split(/\s+/).filter(Boolean);
  const found = all.filter((entry) =>
    words.every((word) => `${entry.label} ${entry.hint}`.toLowerCase().includes(word)),
  );
  const name = query.trim();
  if (name === "") return found.slice(0, SHOWN_MAX);
  return [...found.slice(0, SHOWN_MAX - 6), ...programsLike(name, navigate)];
}

const RECENT_MAX = 5;

/** Programs that were active lately, and whichever has exactly this name. */
function programsLike(name: string, navigate: ReturnType<typeof useNavigate>): Entry[] {
  const names = new Set<string>();
  for (let at = feed.kept.length - 1; at >= 0 && names.size < RECENT_MAX; at -= 1) {
    const program = feed.kept[at]?.program;
    if (program?.toLowerCase().includes(name.toLowerCase())) names.add(program);
  }
  names.delete(name);
  const entry = (program: string, hint: string, id: string): Entry => ({
    id,
    icon: "programs",
    label: visibleText(program),
    hint,
    run: () => void navigate({ to: "/programs/$program", params: { program } }),
  });
  const recent = [...names].map((program, at) => entry(program, "active lately", `program-${at}`));
  return [entry(name, "the program of this name", "exact"), ...recent];
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
