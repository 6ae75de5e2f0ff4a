// The part of a line that is in sight, and how to move it.

export interface View {
  from: number;
  to: number;
}

const SMALLEST_SHARE = 1e-5;

/** Keeps a view within a line of this length. */
export function clampView(view: View, length: number): View {
  const smallest = Math.max(length * SMALLEST_SHARE, 1);
  const width = Math.min(Math.max(view.to - view.from, smallest), length);
  const from = Math.min(Math.max(view.from, 0), length - width);
  return { from, to: from + width };
}

/** Shows `factor` times as much, with the place `at` where it was. */
export function zoomView(view: View, factor: number, at: number, length: number): View {
  return clampView(
    { from: at - (at - view.from) * factor, to: at + (view.to - at) * factor },
    length,
  );
}

/** Moves the view by a share of its width. */
export function panView(view: View, share: number, length: number): View {
  const by = (view.to - view.from) * share;
  return clampView({ from: view.from + by, to: view.to + by }, length);
}
