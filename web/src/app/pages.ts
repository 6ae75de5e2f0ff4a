// The pages in the order of the navigation.
import type { IconName } from "../ui/Icon";

export interface Page {
  to:
    | "/"
    | "/programs"
    | "/steps"
    | "/lanes"
    | "/training"
    | "/actions"
    | "/sandboxes"
    | "/workers"
    | "/policies"
    | "/what-if"
    | "/events"
    | "/admin";
  label: string;
  icon: IconName;
  about: string;
}

export const PAGES: Page[] = [
  { to: "/", label: "Overview", icon: "overview", about: "throughput, memory, alarms" },
  { to: "/programs", label: "Programs", icon: "programs", about: "every trajectory, and why" },
  { to: "/steps", label: "Steps", icon: "steps", about: "LLM calls: the slowest, the failed" },
  { to: "/lanes", label: "Swim lanes", icon: "lanes", about: "all programs of a job" },
  { to: "/training", label: "Training", icon: "training", about: "batches, lag, who waits" },
  { to: "/actions", label: "Actions", icon: "actions", about: "tool calls that treadle runs" },
  { to: "/sandboxes", label: "Sandboxes", icon: "sandboxes", about: "where commands run" },
  { to: "/workers", label: "Workers", icon: "workers", about: "engines and their memory" },
  { to: "/policies", label: "Policies", icon: "policies", about: "who decides" },
  { to: "/what-if", label: "What-if", icon: "whatif", about: "replay other policies" },
  { to: "/events", label: "Events", icon: "events", about: "the journal as it grows" },
  { to: "/admin", label: "Admin", icon: "admin", about: "tokens, tenants, audit" },
];
