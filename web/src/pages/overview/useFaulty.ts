// Which of the policies that answer has most faults.
import { useQueries, useQuery } from "@tanstack/react-query";
import { bindings, plugin } from "../../api/queries";
import type { Named } from "../../model/alarms";
import { digestOf, type Statistics, shortPolicy } from "../policies/types";

/** The policy with most faults, looked for while that is wanted; nothing where none has any. */
export function useFaulty(wanted: boolean): Named | null {
  const { data } = useQuery({ ...bindings, enabled: wanted });
  const named = new Map<string, string>();
  for (const one of data?.bindings ?? []) {
    const digest = digestOf(one.policy);
    if (digest) named.set(digest, shortPolicy(one.policy));
  }
  return useQueries({
    queries: [...named.keys()].map((digest) => ({ ...plugin(digest), enabled: wanted })),
    combine: (answers) => {
      let worst: { digest: string; faults: number } | null = null;
      for (const { data: found } of answers) {
        const statistics = found?.statistics as Statistics | null | undefined;
        const faults = Object.values(statistics?.faults ?? {}).reduce((sum, one) => sum + one, 0);
        if (found && faults > (worst?.faults ?? 0)) worst = { digest: found.digest, faults };
      }
      return worst === null ? null : { digest: worst.digest, name: named.get(worst.digest) ?? "" };
    },
  });
}
