// The pages and what their URLs hold.
import {
  createRootRoute,
  createRoute,
  createRouter,
  lazyRouteComponent,
  redirect,
} from "@tanstack/react-router";
import { Failure, Loading } from "../ui/Panel";
import { NotFound, Shell } from "./Shell";

/** Where the pages are; the daemon answers these paths with the console. */
const BASE = "/console";
if (window.location.pathname === "/") window.history.replaceState(null, "", `${BASE}/`);

type Search = Record<string, unknown>;

function text(search: Search, key: string): string | undefined {
  const value = search[key];
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** Takes the named texts from a URL and drops everything else. */
function texts<K extends string>(...keys: K[]) {
  return (search: Search): { [P in K]?: string } => {
    const found: { [P in K]?: string } = {};
    for (const key of keys) {
      const value = text(search, key);
      if (value !== undefined) found[key] = value;
    }
    return found;
  };
}

const root = createRootRoute({ component: Shell, notFoundComponent: NotFound });

const overview = createRoute({
  getParentRoute: () => root,
  path: "/",
  validateSearch: texts("period"),
  component: lazyRouteComponent(() => import("../pages/overview/Overview"), "Overview"),
});
const programs = createRoute({
  getParentRoute: () => root,
  path: "/programs",
  validateSearch: texts("job", "status", "worker", "parent", "sort", "find", "by", "group"),
  component: lazyRouteComponent(() => import("../pages/programs/Programs"), "Programs"),
});
const program = createRoute({
  getParentRoute: () => root,
  path: "/programs/$program",
  validateSearch: texts("tab", "step", "idle"),
  component: lazyRouteComponent(() => import("../pages/program/Program"), "Program"),
});
const steps = createRoute({
  getParentRoute: () => root,
  path: "/steps",
  validateSearch: texts("job", "worker", "outcome", "sort"),
  component: lazyRouteComponent(() => import("../pages/steps/Steps"), "Steps"),
});
const lanes = createRoute({
  getParentRoute: () => root,
  path: "/lanes",
  validateSearch: texts("job", "color", "live", "limit"),
  component: lazyRouteComponent(() => import("../pages/lanes/Lanes"), "Lanes"),
});
const training = createRoute({
  getParentRoute: () => root,
  path: "/training",
  component: lazyRouteComponent(() => import("../pages/training/Training"), "Training"),
});
const trainingJob = createRoute({
  getParentRoute: () => root,
  path: "/training/$job",
  validateSearch: texts("axis", "batch", "group", "tab", "updates"),
  component: lazyRouteComponent(() => import("../pages/training/Job"), "Job"),
});
const sample = createRoute({
  getParentRoute: () => root,
  path: "/training/$job/members/$program",
  validateSearch: texts("batch", "of", "at"),
  component: lazyRouteComponent(() => import("../pages/training/Sample"), "Sample"),
});
const actions = createRoute({
  getParentRoute: () => root,
  path: "/actions",
  validateSearch: texts("action", "job", "program", "status"),
  component: lazyRouteComponent(() => import("../pages/actions/Actions"), "Actions"),
});
const sandboxes = createRoute({
  getParentRoute: () => root,
  path: "/sandboxes",
  component: lazyRouteComponent(() => import("../pages/sandboxes/Sandboxes"), "Sandboxes"),
});
const workers = createRoute({
  getParentRoute: () => root,
  path: "/workers",
  validateSearch: texts("worker"),
  component: lazyRouteComponent(() => import("../pages/workers/Workers"), "Workers"),
});
const policies = createRoute({
  getParentRoute: () => root,
  path: "/policies",
  validateSearch: texts("tab", "world"),
  component: lazyRouteComponent(() => import("../pages/policies/Policies"), "Policies"),
});
const policy = createRoute({
  getParentRoute: () => root,
  path: "/policies/$plugin",
  validateSearch: texts("tab"),
  component: lazyRouteComponent(() => import("../pages/policies/Policy"), "Policy"),
});
const whatIf = createRoute({
  getParentRoute: () => root,
  path: "/what-if",
  validateSearch: texts("run"),
  component: lazyRouteComponent(() => import("../pages/whatif/WhatIf"), "WhatIf"),
});
const events = createRoute({
  getParentRoute: () => root,
  path: "/events",
  validateSearch: texts("job", "program", "kind", "seq", "timers"),
  component: lazyRouteComponent(() => import("../pages/events/Events"), "Events"),
});
const admin = createRoute({
  getParentRoute: () => root,
  path: "/admin",
  validateSearch: texts("tab", "action", "who", "target"),
  component: lazyRouteComponent(() => import("../pages/admin/Admin"), "Admin"),
});
const signIn = createRoute({
  getParentRoute: () => root,
  path: "/sign-in",
  validateSearch: texts("then", "failed"),
  component: lazyRouteComponent(() => import("../pages/signin/SignIn"), "SignIn"),
});
const index = createRoute({
  getParentRoute: () => root,
  path: "/overview",
  beforeLoad: () => {
    throw redirect({ to: "/" });
  },
});

export const router = createRouter({
  routeTree: root.addChildren([
    overview,
    programs,
    program,
    steps,
    lanes,
    training,
    trainingJob,
    sample,
    actions,
    sandboxes,
    workers,
    policies,
    policy,
    whatIf,
    events,
    admin,
    signIn,
    index,
  ]),
  basepath: BASE,
  defaultPreload: "intent",
  defaultPendingComponent: Loading,
  defaultErrorComponent: ({ error, reset }) => (
    <div className="page">
      <Failure error={error} retry={reset} />
    </div>
  ),
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
