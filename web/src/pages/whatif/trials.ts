// The policies of a set that can become canaries, and their present roles.
import type { BindingShown, PluginView, WhatIfPolicy, WhatIfSet } from "../../api/types";
import { digestOf } from "../policies/names";

/** A stored policy as a set had it. */
export interface Trial {
  plugin: PluginView;
  config: Record<string, unknown>;
  /** The role that it has so for the job already. */
  role: "active" | "canary" | null;
  /** The canary whose place it takes. */
  replaces: string | null;
}

/** The canaries for a set; empty if its policies are not stored here. */
export function trialsOf(
  set: WhatIfSet,
  plugins: PluginView[],
  bindings: BindingShown[],
  job: string,
): Trial[] {
  const chosen = set.asked.filter((policy) => !policy.is_default);
  return chosen.flatMap((policy) => {
    const plugin = plugins.find((one) => isOf(one, policy));
    return plugin ? [trialOf(plugin, policy.config, bindings, job)] : [];
  });
}

function isOf(plugin: PluginView, { world, name, version }: WhatIfPolicy): boolean {
  return plugin.world === world && plugin.name === name && plugin.version === version;
}

function trialOf(
  plugin: PluginView,
  config: Record<string, unknown>,
  bindings: BindingShown[],
  job: string,
): Trial {
  const ofWorld = bindings.filter((one) => one.world === plugin.world);
  // A tenant's own binding for all its jobs comes after everyone's.
  const own = ofWorld.findLast((one) => one.job === job);
  const binding = own ?? ofWorld.findLast((one) => one.job === "*");
  const canary = binding?.canary;
  const has = (role: "active" | "canary", policy: string | undefined) => {
    const recorded = binding?.on_record?.[role]?.config;
    const isSame = !recorded || textOf(recorded) === textOf(config);
    return isSame && plugin.digest.startsWith(digestOf(policy ?? "") ?? "none");
  };
  const role = has("active", binding?.policy)
    ? "active"
    : has("canary", canary?.policy)
      ? "canary"
      : null;
  return { plugin, config, role, replaces: (own && canary?.policy) ?? null };
}

/** A configuration whatever the order of its keys. */
function textOf(config: Record<string, unknown>): string {
  return JSON.stringify(Object.entries(config).sort(([a], [b]) => (a < b ? -1 : 1)));
}
