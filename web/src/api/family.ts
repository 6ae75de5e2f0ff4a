// The programs around one: what started it, and what it started, level by level.
import { queryOptions } from "@tanstack/react-query";
import { type Family, LEVELS_MAX } from "../model/family";
import { ApiError, call } from "./client";
import { inPool } from "./pool";
import type { ProgramView } from "./types";

/** Maximum number of ancestors that are loaded. */
const ANCESTORS_MAX = 3;
/** Maximum number of subagents whose own subagents are loaded. */
const ASKED_MAX = 24;
const PAGE = 1000;

/** The family of a program that was started by `parent`. */
export const family = (id: string, parent: string | null | undefined) =>
  queryOptions({
    queryKey: ["family", id, parent],
    queryFn: async ({ signal }): Promise<Family> => ({
      above: await above(parent, signal),
      ...(await below(id, signal)),
    }),
  });

async function above(parent: string | null | undefined, signal: AbortSignal) {
  const found: ProgramView[] = [];
  let next = parent;
  while (next && found.length < ANCESTORS_MAX) {
    const view = await read(next, signal);
    if (!view) break;
    found.push(view);
    next = view.parent;
  }
  return found;
}

/** A program; null if it is no longer on record. */
async function read(id: string, signal: AbortSignal): Promise<ProgramView | null> {
  try {
    return await call("get", "/api/v1/programs/{program}", { path: { program: id }, signal });
  } catch (error) {
    if (error instanceof ApiError && error.code === "program_unknown") return null;
    throw error;
  }
}

async function below(id: string, signal: AbortSignal): Promise<Omit<Family, "above">> {
  const levels: ProgramView[][] = [];
  const cut: string[] = [];
  let parents = [id];
  let asked = 0;
  while (levels.length < LEVELS_MAX && parents.length > 0 && asked < ASKED_MAX) {
    const now = parents.slice(0, ASKED_MAX - asked);
    asked += now.length;
    const pages = await inPool(now, (parent) =>
      call("get", "/api/v1/programs", { query: { parent, limit: PAGE }, signal }),
    );
    cut.push(...now.filter((_, at) => pages[at]?.next));
    const level = pages.flatMap((page) => page.programs);
    if (level.length > 0) levels.push(level);
    parents = [...parents.slice(now.length), ...level.map((program) => program.program_id)];
  }
  return { below: levels, cut, unasked: parents.length };
}
