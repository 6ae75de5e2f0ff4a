// For whom a binding holds, in words. The daemon takes a job's name as one of the tenant that the
// caller acts in; all jobs of the tenant `default` are those of everyone.
import type { BindingShown } from "../../api/types";
import { visibleText } from "../../format/text";

/** Who asks: what `whoami` says of it. */
export interface Asker {
  root: boolean;
  tenant: string;
  tenants: number;
}

export interface Scope {
  /** Completes "for …". */
  text: string;
  /** Whether this caller can change bindings for it. */
  permitted: boolean;
}

const ALL_JOBS = "*";
const DEFAULT_TENANT = "default";
/** Stands around the tenant in names that callers of the whole daemon see. */
const MARK = "\u001f";

/** For whom a binding holds that this caller makes for a job. */
export function scopeOfNew(job: string, asker: Asker): Scope {
  if (job === ALL_JOBS && asker.tenant === DEFAULT_TENANT) return everyone(asker);
  return { text: jobsOf(job, asker.tenant), permitted: true };
}

/** For whom a binding holds that is among those which this caller sees. */
export function scopeOf(binding: BindingShown, all: BindingShown[], asker: Asker): Scope {
  const { job } = binding;
  if (job.startsWith(MARK)) {
    const [, tenant = "", name = ""] = job.split(MARK);
    return { text: jobsOf(name, tenant), permitted: false };
  }
  const isOfWorld = (one: BindingShown) => one.world === binding.world && one.job === ALL_JOBS;
  // A tenant's own one for all its jobs comes after everyone's.
  const isEveryones = all.find(isOfWorld) === binding;
  return isEveryones ? everyone(asker) : scopeOfNew(job, asker);
}

function everyone({ root, tenant, tenants }: Asker): Scope {
  const permitted = tenant === DEFAULT_TENANT && (root || tenants <= 1);
  return { text: "all jobs of all tenants", permitted };
}

function jobsOf(job: string, tenant: string): string {
  return `${job === ALL_JOBS ? "all jobs" : `job ${visibleText(job, 60)}`} of tenant ${tenant}`;
}
