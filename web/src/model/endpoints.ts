// Engines with ranks: each rank is a worker of its own, and those of one address step together.
import type { WorkerView } from "../api/types";

export interface Endpoint {
  address: string;
  /** Its workers, by rank; one without ranks has one. */
  ranks: WorkerView[];
}

/** The rank in a worker's URL, which is `ADDRESS#RANK` for one of an engine with ranks. */
export function rankOf({ url }: Pick<WorkerView, "url">): number | null {
  const [, rank] = /#(\d+)$/.exec(url) ?? [];
  return rank === undefined ? null : Number(rank);
}

function addressOf({ url }: Pick<WorkerView, "url">): string {
  return url.split("#")[0] ?? url;
}

/** The engines, each where its first worker stands in the list. */
export function endpointsOf(workers: WorkerView[]): Endpoint[] {
  const byAddress = new Map<string, WorkerView[]>();
  for (const worker of workers) {
    const address = addressOf(worker);
    const ranks = byAddress.get(address);
    if (ranks) ranks.push(worker);
    else byAddress.set(address, [worker]);
  }
  return [...byAddress].map(([address, ranks]) => ({
    address,
    ranks: ranks.toSorted((a, b) => (rankOf(a) ?? 0) - (rankOf(b) ?? 0)),
  }));
}

/** Workers of one address: an engine with ranks has several, and its weights are those of all. */
export function sameEngine(worker: WorkerView, workers: WorkerView[]): number[] {
  const address = addressOf(worker);
  return workers.filter((one) => addressOf(one) === address).map((one) => Number(one.id));
}

export interface EndpointLoad {
  steps: number;
  programs: number;
  used: number;
  /** Null if that of a rank is not known. */
  capacity: number | null;
  /** Tokens of the fullest rank, divided by the mean of all: a step takes as long as at the rank with
   *  most to do. Null while there are none. */
  imbalance: number | null;
}

export function loadOf({ ranks }: Endpoint): EndpointLoad {
  const sum = (value: (rank: WorkerView) => number) =>
    ranks.reduce((total, rank) => total + value(rank), 0);
  const used = sum((rank) => rank.used_tokens);
  const most = Math.max(...ranks.map((rank) => rank.used_tokens));
  const isKnown = ranks.every(({ capacity_tokens }) => capacity_tokens != null);
  return {
    steps: sum((rank) => rank.load),
    programs: sum((rank) => rank.programs),
    used,
    capacity: isKnown ? sum((rank) => rank.capacity_tokens ?? 0) : null,
    imbalance: used > 0 ? most / (used / ranks.length) : null,
  };
}
