// The part of a line that is in sight, moved by buttons, keys and the wheel.
import {
  type KeyboardEvent,
  type RefObject,
  useCallback,
  useEffect,
  useRef,
  useState,
} from "react";
import { clampView, panView, type View, zoomView } from "./view";

export interface ViewControl {
  /** What is in sight. */
  sight: View;
  /** Whether that is everything. */
  whole: boolean;
  zoom: (factor: number, at?: number) => void;
  show: (view: View | null) => void;
  onKey: (event: KeyboardEvent) => void;
}

const PAN_SHARE = 0.15;

export function useView(length: number): ViewControl {
  const [view, setView] = useState<View | null>(null);
  const sight = view ? clampView(view, length) : { from: 0, to: length };
  const zoom = useCallback(
    (factor: number, at?: number) =>
      setView((before) => {
        const now = before ?? { from: 0, to: length };
        return zoomView(now, factor, at ?? (now.from + now.to) / 2, length);
      }),
    [length],
  );
  const onKey = (event: KeyboardEvent) => {
    const acts: Record<string, () => void> = {
      "+": () => zoom(0.6),
      "=": () => zoom(0.6),
      "-": () => zoom(1.6),
      "0": () => setView(null),
      arrowleft: () => setView(panView(sight, -PAN_SHARE, length)),
      arrowright: () => setView(panView(sight, PAN_SHARE, length)),
    };
    // Without Shift, arrows lead from span to span.
    const name = event.key.toLowerCase();
    const act = name.startsWith("arrow") && !event.shiftKey ? undefined : acts[name];
    if (!act || event.ctrlKey || event.metaKey) return;
    event.preventDefault();
    act();
  };
  return { sight, whole: view === null, zoom, show: setView, onKey };
}

/** The browser's wheel listeners of React can't keep the page from zooming. */
export function useWheelZoom(
  element: RefObject<HTMLElement | null>,
  zoom: (factor: number, at: number) => void,
  placeOf: (x: number) => number,
): void {
  const latest = useRef({ zoom, placeOf });
  latest.current = { zoom, placeOf };
  useEffect(() => {
    const target = element.current;
    if (!target) return;
    const onWheel = (event: WheelEvent) => {
      if (!event.ctrlKey && !event.metaKey) return;
      event.preventDefault();
      const x = event.clientX - target.getBoundingClientRect().left;
      latest.current.zoom(Math.exp(event.deltaY * 0.004), latest.current.placeOf(x));
    };
    target.addEventListener("wheel", onWheel, { passive: false });
    return () => target.removeEventListener("wheel", onWheel);
  }, [element]);
}
