// The frame of every page: navigation, the state of the connection, the account.
import { useQuery } from "@tanstack/react-query";
import { Link, Navigate, Outlet, useRouterState } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { ApiError } from "../api/client";
import { whoami } from "../api/queries";
import { Icon } from "../ui/Icon";
import { Notices } from "../ui/notices";
import { PageHead } from "../ui/Panel";
import { TipProvider } from "../ui/Tip";
import { Account } from "./Account";
import { Connection, SessionEnded } from "./Connection";
import { useHere } from "./here";
import { Palette } from "./Palette";
import { PAGES } from "./pages";
import { ThemeSwitch } from "./ThemeSwitch";
import { tour } from "./tour/state";
import { Tour } from "./tour/Tour";

export function Shell() {
  const [palette, setPalette] = useState(false);
  useShortcut(() => setPalette((open) => !open));
  const main = useTitleAndFocus();
  return (
    <TipProvider delayDuration={300}>
      <a className="skip" href="#main">
        Skip to content
      </a>
      <div className="shell">
        <aside className="side">
          <Link to="/" className="brand">
            <img src="/assets/treadle.svg" alt="" width="22" height="22" />
            treadle
          </Link>
          <button type="button" className="find" onClick={() => setPalette(true)}>
            <Icon name="search" />
            <span>Find or go to</span>
            <kbd>Ctrl K</kbd>
          </button>
          <nav aria-label="Pages">
            {PAGES.map((page) => (
              <Link
                key={page.to}
                to={page.to}
                className="nav"
                activeProps={{ className: "nav active", "aria-current": "page" }}
                activeOptions={{ exact: page.to === "/", includeSearch: false }}
              >
                <Icon name={page.icon} />
                {page.label}
              </Link>
            ))}
          </nav>
          <div className="side-foot">
            <Connection />
            <Account />
            <div className="side-tools">
              <ThemeSwitch />
              <button
                type="button"
                className="button ghost icon-only"
                aria-label="Guided tour"
                title="Guided tour"
                onClick={tour.start}
              >
                <Icon name="help" />
              </button>
            </div>
          </div>
        </aside>
        <main id="main" ref={main} tabIndex={-1}>
          <SessionEnded />
          <Page />
        </main>
      </div>
      <Palette open={palette} onOpenChange={setPalette} />
      <Tour />
      <Notices />
    </TipProvider>
  );
}

/** The page, or the sign-in if the daemon shows nothing to callers without a token. */
function Page() {
  const { error } = useQuery(whoami);
  const path = useRouterState({ select: (state) => state.location.pathname });
  const then = useHere();
  const isRefused = error instanceof ApiError && error.status === 401;
  return isRefused && path !== "/sign-in" ? (
    <Navigate to="/sign-in" search={then ? { then } : {}} replace />
  ) : (
    <Outlet />
  );
}

export function NotFound() {
  return (
    <div className="page">
      <PageHead title="There is no such page" />
      <p>
        Press <kbd>Ctrl K</kbd> to find one, or go to the <Link to="/">overview</Link>.
      </p>
    </div>
  );
}

function useShortcut(toggle: () => void): void {
  const latest = useRef(toggle);
  latest.current = toggle;
  useEffect(() => {
    const onKey = (event: KeyboardEvent) => {
      if (event.key.toLowerCase() !== "k" || !(event.ctrlKey || event.metaKey)) return;
      event.preventDefault();
      latest.current();
    };
    window.addEventListener("keydown", onKey);
    return () => window.removeEventListener("keydown", onKey);
  }, []);
}

/** A decoded part of an address; unchanged if it is malformed. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

/** Names the document after the page, and moves the focus to the page when it changes. */
function useTitleAndFocus() {
  const main = useRef<HTMLElement>(null);
  const path = useRouterState({ select: (state) => state.location.pathname });
  const first = useRef(true);
  useEffect(() => {
    const page = PAGES.findLast((one) => path === one.to || path.startsWith(`${one.to}/`));
    const rest = path.split("/").slice(2).map(decoded).join("/");
    const label = page?.label ?? (path === "/sign-in" ? "Sign in" : "No such page");
    document.title = [rest.slice(0, 80), label, "treadle"].filter(Boolean).join(" · ");
    // The tour turns pages, and goes on itself.
    const inTour = document.activeElement?.closest(".tour");
    if (!first.current && !inTour) main.current?.focus({ preventScroll: true });
    first.current = false;
  }, [path]);
  return main;
}
