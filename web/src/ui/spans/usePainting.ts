// Paints a canvas whenever what is on it changes.
import { type RefObject, useLayoutEffect, useState } from "react";
import type { Span } from "../../model/timeline";
import { colorOf, useColorVersion } from "../theme";
import { type Picture, paint } from "./paint";

/** The colour of a span: that of its state, or its own. */
export function stateColor(span: Span): string {
  return colorOf(`state-${span.token ?? span.state}`);
}

export function usePainting(canvas: RefObject<HTMLCanvasElement | null>, picture: Picture): void {
  const colors = useColorVersion();
  const { lanes, scale, view, layout, colorFor, selected, marked, focused } = picture;
  const { width, height, rowHeight, scrollTop } = layout;
  // biome-ignore lint/correctness/useExhaustiveDependencies: `colors` stands for what tokens give, the rest for the picture
  useLayoutEffect(() => {
    const element = canvas.current;
    const context = element?.getContext("2d");
    if (!element || !context || width === 0) return;
    const ratio = window.devicePixelRatio || 1;
    element.width = Math.round(width * ratio);
    element.height = Math.round(height * ratio);
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    paint(context, picture);
  }, [
    lanes,
    scale,
    view.from,
    view.to,
    width,
    height,
    rowHeight,
    scrollTop,
    colorFor,
    selected,
    marked,
    focused?.lane,
    focused?.span,
    colors,
  ]);
}

/** The width of an element, as it changes. */
export function useWidth(element: RefObject<HTMLElement | null>): number {
  const [width, setWidth] = useState(0);
  useLayoutEffect(() => {
    const target = element.current;
    if (!target) return;
    const observer = new ResizeObserver(() => setWidth(target.clientWidth));
    observer.observe(target);
    setWidth(target.clientWidth);
    return () => observer.disconnect();
  }, [element]);
  return width;
}
