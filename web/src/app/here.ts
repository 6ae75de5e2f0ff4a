// Where to come back to after signing in.
import { useRouterState } from "@tanstack/react-router";

/** The page that is open; where that is the sign-in itself, the one that it leads back to. */
export function useHere(): string | undefined {
  return useRouterState({
    select: ({ location }) => {
      if (!location.pathname.endsWith("/sign-in")) return location.pathname + location.searchStr;
      const { then } = location.search as { then?: string };
      return then;
    },
  });
}

const LOOPBACK = /^(localhost|127(\.\d+){3}|\[::1\])$/;

/** Whether the console was called by an address of the machine that it runs on. */
export function isLoopback(): boolean {
  return LOOPBACK.test(window.location.hostname);
}
