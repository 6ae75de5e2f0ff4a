// Workers by the names that the console shows. The API names them in three ways: by number, by
// number with a w, and by URL.
import { useQuery } from "@tanstack/react-query";
import { useMemo } from "react";
import { visibleText } from "../format/text";
import { workers } from "./queries";

export interface WorkerNames {
  nameOf: (worker: string) => string;
  idOf: (worker: string) => string | null;
}

/** Names of workers; those that are gone have their URL. */
export function useWorkerNames(): WorkerNames {
  const { data } = useQuery(workers);
  const key = data?.workers.map((worker) => `${worker.id} ${worker.url}`).join("\n") ?? "";
  return useMemo(() => {
    const byUrl = new Map(
      key.split("\n").map((line): [string, string] => {
        const [id = "", url = ""] = line.split(" ");
        return [url, id];
      }),
    );
    const idOf = (worker: string) => {
      const number = /^w?(\d+)$/.exec(worker)?.[1];
      return number ?? byUrl.get(worker) ?? null;
    };
    const nameOf = (worker: string) => {
      const id = idOf(worker);
      return id === null ? visibleText(worker, 60) : `worker ${id}`;
    };
    return { nameOf, idOf };
  }, [key]);
}
