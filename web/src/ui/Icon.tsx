// The icons, 16 by 16, drawn with the colour of the text around them.

const PATHS = {
  overview: "M2 13V8m4 5V3m4 10V6m4 7V9",
  programs: "M2 4h8M2 8h12M5 12h7",
  steps: "M2 13h3V9.5h3.5V6H12V3h2",
  lanes: "M2 3h4m3 0h5M2 8h7m3 0h2M2 13h2m3 0h7",
  training: "M2 13.5h12M2.5 10.5l3.5-3 2.5 1.5 5-5.5M10 3.5h3.5V7",
  actions: "M9 1.5L3.5 9H8l-1 5.5L12.5 7H8z",
  sandboxes: "M2 5l6-3 6 3v6l-6 3-6-3zM2 5l6 3 6-3M8 8v6",
  workers: "M2.5 3h11v4h-11zM2.5 9h11v4h-11zM5 5h.01M5 11h.01",
  policies: "M8 1.8l5.4 3.1v6.2L8 14.2l-5.4-3.1V4.9zM2.8 5L8 8l5.2-3M8 8v6",
  whatif: "M6 2h4M7 2v4L3 13h10L9 6V2M5 10h6",
  events: "M2 3h12M2 6.5h12M2 10h8M2 13.5h5",
  admin: "M8 1.8l5 2v4c0 3.3-2.2 5.5-5 6.4-2.8-.9-5-3.1-5-6.4v-4zM6 8l1.5 1.5L10.2 6.6",
  search: "M7 12A5 5 0 107 2a5 5 0 000 10zM11 11l3 3",
  sun: "M8 5a3 3 0 100 6 3 3 0 000-6zM8 1v1.5M8 13.5V15M1 8h1.5M13.5 8H15M3 3l1 1M12 12l1 1M13 3l-1 1M4 12l-1 1",
  moon: "M13.5 9.5A6 6 0 116.5 2.5a5 5 0 007 7z",
  auto: "M8 2a6 6 0 100 12zM8 2a6 6 0 010 12",
  close: "M4 4l8 8M12 4l-8 8",
  copy: "M5.5 5.5h8v8h-8zM10.5 5.5v-3h-8v8h3",
  download: "M8 2v8M4.5 7L8 10.5 11.5 7M2.5 13.5h11",
  upload: "M8 10.5V2.5M4.5 6L8 2.5 11.5 6M2.5 13.5h11",
  pause: "M5 3v10M11 3v10",
  play: "M4.5 2.8v10.4L13 8z",
  down: "M4 6l4 4 4-4",
  check: "M3 8.5l3.5 3.5L13 4.5",
  warning: "M8 2L1.5 13.5h13zM8 6.5v3.2M8 11.6h.01",
  more: "M3.5 8h.01M8 8h.01M12.5 8h.01",
  refresh: "M13 8a5 5 0 11-1.5-3.6M13 2v3h-3",
  help: "M8 1.8a6.2 6.2 0 100 12.4A6.2 6.2 0 008 1.8zM6.2 6.2a1.8 1.8 0 113 1.4c-.8.6-1.2 1-1.2 1.8M8 11.4h.01",
  out: "M6.5 3.5h-3v9h9v-3M9 3h4v4M13 3L7.5 8.5",
  link: "M6.5 9.5l3-3M7 4.5l1.6-1.6a2.8 2.8 0 014 4L11 8.5M9 11.5l-1.6 1.6a2.8 2.8 0 01-4-4L5 7.5",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg
      className="icon"
      viewBox="0 0 16 16"
      width="16"
      height="16"
      fill="none"
      stroke="currentColor"
      strokeWidth="1.5"
      strokeLinecap="round"
      strokeLinejoin="round"
      aria-hidden="true"
    >
      <path d={PATHS[name]} />
    </svg>
  );
}
