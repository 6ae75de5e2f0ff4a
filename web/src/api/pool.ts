// Limits how many requests run at once, so that others get their turn.

const RUNNING_MAX = 4;

/** Works through a list, a few at a time; the answers are in its order. */
export async function inPool<T, R>(items: T[], work: (item: T) => Promise<R>): Promise<R[]> {
  const results = new Array<R>(items.length);
  let next = 0;
  const runner = async () => {
    for (;;) {
      const at = next++;
      const item = items[at];
      if (item === undefined) return;
      results[at] = await work(item);
    }
  };
  await Promise.all(Array.from({ length: RUNNING_MAX }, runner));
  return results;
}
