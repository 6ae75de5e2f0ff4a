// The page to return to after signing in.
import { useRouterState } from "@tanstack/react-router";

/** The open page; on the sign-in itself, the page that it leads back to. */
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

/** Whether the console was opened at a loopback address. */
export function isLoopback(): boolean {
  return LOOPBACK.test(window.location.hostname);
}
