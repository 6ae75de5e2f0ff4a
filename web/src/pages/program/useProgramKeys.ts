// Names of programs by the numbers that decisions have them by.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { call } from "../../api/client";
import type { DecisionView } from "../../api/types";
import { numberOf, othersOf } from "../../model/explain";
import type { ProgramData } from "./useProgramData";

/** Decisions that are looked through for names, from the first about a program on and up to the last. */
const READ_MAX = 1000;
const REFRESH_MS = 30_000;

/** The names of programs that were in question beside this one, as far as decisions tell them. */
export function useProgramKeys({ view, decisions }: ProgramData): Map<number, string> {
  const [first, last] = [decisions[0]?.seq, decisions.at(-1)?.seq];
  const { job, program_id: id } = view;
  const { data } = useQuery({
    queryKey: ["programKeys", id],
    enabled: decisions.some((decision) => othersOf(decision).length > 0),
    staleTime: REFRESH_MS,
    refetchInterval: view.ended ? false : REFRESH_MS,
    queryFn: async ({ signal }) => {
      const read = (sort: string, after: number) =>
        call("get", "/api/v1/decisions", {
          query: { job, sort, after: String(after), limit: READ_MAX },
          signal,
        });
      const pages = await Promise.all([
        read("seq", Math.max(0, (first ?? 1) - 1)),
        read("-seq", (last ?? 0) + 1),
      ]);
      return pages.flatMap((page) => page.decisions.map(keyOf));
    },
  });
  return useMemo(() => new Map(data?.filter((one) => one !== null)), [data]);
}

function keyOf(decision: DecisionView): [number, string] | null {
  const number = numberOf(decision);
  return number !== null && decision.program_id ? [number, decision.program_id] : null;
}
