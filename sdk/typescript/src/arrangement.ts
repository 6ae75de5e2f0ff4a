/** Builds answers to `arrange` that fit into the free units and chunks. */

import type { ActionColumns, PoolColumns } from "./allocation";

/** Sizes of chunks of devices. */
const SIZES = [1, 2, 4, 8];

/** The indices of a row's options in `optionUnits`, `optionUs` and `optionLoadUs`, in order. */
export function optionsOf(actions: ActionColumns, row: number): number[] {
  const start = actions.optionStart[row];
  return Array.from({ length: actions.optionStart[row + 1] - start }, (_, option) => start + option);
}

/** Total time of an option, to load the service and to run, in microseconds; `undefined` if unknown. */
export function optionTimeUs(actions: ActionColumns, option: number): number | undefined {
  const runUs = actions.optionUs[option];
  return runUs >= 0 ? runUs + Math.max(actions.optionLoadUs[option], 0) : undefined;
}

/**
 * The remaining units of one pool.
 *
 * Devices are granted in the smallest chunk that has them, which is split if it is larger. Because
 * sizes are powers of two, some actions fit together, in any order, if and only if for each size
 * those of that size and above fit into the chunks of that size and above. So it is enough to count
 * what these have left.
 */
export class FreeUnits {
  readonly #isChunked: boolean;
  /** Units in chunks of at least 1, 2, 4 and 8; one count for a pool without chunks. */
  readonly #left: number[];

  private constructor(isChunked: boolean, left: number[]) {
    this.#isChunked = isChunked;
    this.#left = left;
  }

  /** The free units of a pool. */
  static of(pools: PoolColumns, pool: number): FreeUnits {
    if (pools.chunked[pool] === 0) return FreeUnits.plain(pools.freeUnits[pool]);
    return FreeUnits.chunked(pools.freeChunks.slice(4 * pool, 4 * pool + 4));
  }

  /** A pool of interchangeable units. */
  static plain(units: number): FreeUnits {
    return new FreeUnits(false, [units]);
  }

  /** A pool with these numbers of chunks of 1, 2, 4 and 8 devices. */
  static chunked(chunks: readonly number[]): FreeUnits {
    const units = SIZES.map((size, level) => size * chunks[level]);
    return new FreeUnits(true, units.map((_, level) => units.slice(level).reduce((sum, more) => sum + more)));
  }

  /** The number of remaining units. */
  get units(): number {
    return this.#left[0];
  }

  /**
   * Units that an action with this demand takes: a whole chunk, if there are chunks. `undefined` if
   * no size of chunk is large enough.
   */
  taken(units: number): number | undefined {
    return !this.#isChunked || units === 0 ? units : SIZES.find((size) => size >= units);
  }

  /** Whether an action with this demand fits. */
  fits(units: number): boolean {
    const taken = this.taken(units);
    return taken !== undefined && this.#left.every((left, level) => left >= taken || !this.#counts(level, taken));
  }

  /** Takes the units for an action with this demand, if they are free. */
  take(units: number): boolean {
    const fits = this.fits(units);
    if (fits) this.#add(units, -1);
    return fits;
  }

  /** Returns the units of an action with this demand. */
  giveBack(units: number): void {
    this.#add(units, 1);
  }

  #add(units: number, sign: 1 | -1): void {
    const taken = this.taken(units) ?? 0;
    for (const level of this.#left.keys()) {
      if (this.#counts(level, taken)) this.#left[level] += sign * taken;
    }
  }

  /** Whether an action of this size is part of a count. */
  #counts(level: number, taken: number): boolean {
    return !this.#isChunked || SIZES[level] <= taken;
  }
}

/** An answer to `arrange` under construction, which takes only free units. At first all rows wait. */
export class Arrangement {
  readonly #actions: ActionColumns;
  readonly #free: FreeUnits[];
  readonly #chosen: number[];

  constructor(actions: ActionColumns) {
    this.#actions = actions;
    this.#free = actions.pools.freeUnits.map((_, pool) => FreeUnits.of(actions.pools, pool));
    this.#chosen = actions.pool.map(() => -1);
  }

  /** The remaining units of a pool. */
  free(pool: number): FreeUnits {
    return this.#free[pool];
  }

  /**
   * Starts a row with an option, by its index within the row, or changes its option. Returns
   * `false` and changes nothing if that does not fit or there is no such option.
   */
  start(row: number, option: number): boolean {
    const { pool, optionUnits } = this.#actions;
    const options = optionsOf(this.#actions, row);
    if (options[option] === undefined) return false;
    const [free, chosen] = [this.#free[pool[row]], this.#chosen[row]];
    if (chosen >= 0) free.giveBack(optionUnits[options[chosen]]);
    if (free.take(optionUnits[options[option]])) {
      this.#chosen[row] = option;
      return true;
    }
    if (chosen >= 0) free.take(optionUnits[options[chosen]]);
    return false;
  }

  /**
   * Starts the candidates of each pool in order, each with the option that `choose` returns for its
   * row, up to the first that does not fit.
   */
  inOrder(choose: (row: number) => number): void {
    const { pool, candidate } = this.#actions;
    const ended = this.#free.map(() => false);
    for (const row of pool.keys()) {
      if (candidate[row] !== 0 && !ended[pool[row]]) ended[pool[row]] = !this.start(row, choose(row));
    }
  }

  /** Distributes remaining units to the rows that start, each time where they save most time per unit. */
  shareOut(): void {
    const found = this.#chosen.map((_, row) => this.#step(row));
    const steps = found.filter((step) => step !== undefined).sort(order);
    for (let step = steps.pop(); step !== undefined; step = steps.pop()) {
      this.start(step.row, step.option);
      // If it no longer fits, a smaller option may.
      const next = this.#step(step.row);
      if (next !== undefined) steps.splice(place(steps, next), 0, next);
    }
  }

  /** The answer. */
  answer(): number[] {
    return this.#chosen;
  }

  /** The best larger option of a row that starts, among those that fit now. */
  #step(row: number): Step | undefined {
    const [actions, chosen] = [this.#actions, this.#chosen[row]];
    if (chosen < 0) return undefined;
    const [options, free] = [optionsOf(actions, row), this.#free[actions.pool[row]]];
    const nowUs = optionTimeUs(actions, options[chosen]);
    const held = free.taken(actions.optionUnits[options[chosen]]);
    if (nowUs === undefined || held === undefined) return undefined;
    let best: Step | undefined;
    free.giveBack(held);
    for (let option = chosen + 1; option < options.length; option += 1) {
      const [units, timeUs] = [actions.optionUnits[options[option]], optionTimeUs(actions, options[option])];
      if (timeUs === undefined || timeUs >= nowUs || !free.fits(units)) continue;
      const more = Math.max((free.taken(units) ?? 0) - held, 1);
      const step = { savedUs: (nowUs - timeUs) / more, row, option };
      if (best === undefined || order(best, step) < 0) best = step;
    }
    free.take(held);
    return best;
  }
}

/** A larger option for a row. */
interface Step {
  /** Time saved per additional unit. */
  readonly savedUs: number;
  readonly row: number;
  readonly option: number;
}

/** The best step comes last. On equal savings the first row wins, and the smaller option. */
function order(a: Step, b: Step): number {
  return a.savedUs - b.savedUs || b.row - a.row || b.option - a.option;
}

/** Where a step belongs among steps in order. */
function place(steps: readonly Step[], step: Step): number {
  let [low, high] = [0, steps.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (order(steps[middle], step) < 0) low = middle + 1;
    else high = middle;
  }
  return low;
}
