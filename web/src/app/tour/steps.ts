// Texts of the guided tour: the question that each part of three pages answers.

export interface TourStep {
  page: "overview" | "program" | "policies";
  /** What is marked on the page. */
  target: string;
  title: string;
  text: string[];
}

const panelWith = (chart: string) => `.panel:has([aria-label="${chart}"])`;

export const STEPS: TourStep[] = [
  {
    page: "overview",
    target: ".stats",
    title: "Does the work get done?",
    text: [
      "A program is one agent trajectory, a step one of its LLM calls. Steps a minute is the figure to compare before and after a change.",
      "Found in cache is the share of prompts that engines did not have to compute again. If it falls while programs are paused, memory is short.",
    ],
  },
  {
    page: "overview",
    target: panelWith("Programs by state over time"),
    title: "What are the programs doing?",
    text: [
      "An agent alternates between LLM calls and tools. While a tool runs, its KV cache computes nothing and still fills memory.",
      "When memory runs short, treadle pauses a program and gives its placement to another one. If much is queued and much memory is held for tools, steps wait for other programs' tools.",
    ],
  },
  {
    page: "overview",
    target: panelWith("Use of KV memory over time"),
    title: "What does the memory go to?",
    text: [
      "Every token-second of KV memory is booked to one use. Decode and prefill make progress.",
      "Held for tools is the cost of keeping a cache, recompute the cost of having dropped it. A good policy keeps both small.",
    ],
  },
  {
    page: "program",
    target: ".panel:has(.spans)",
    title: "Why did this program wait?",
    text: [
      "Its time runs from left to right: in the queue, on which worker, with which tool, and where its cache was meanwhile. A queued stretch is a step that no worker had room for yet.",
      "Point at a stretch to read it, or go there by arrow keys. The keys + and − zoom.",
    ],
  },
  {
    page: "program",
    target: ".decisions",
    title: "The reason is on record",
    text: [
      "Each placement, pause, restore and move is here with its cause, its figures, the alternatives, and what would have changed it.",
      "Inputs shows everything that the policy received. So each wait has an explanation such as: the worker's programs needed more than its high watermark.",
    ],
  },
  {
    page: "policies",
    target: ".bindings",
    title: "Who decided that?",
    text: [
      "One policy answers each kind of question, for all jobs or for one. If it fails, the built-in default answers.",
      "A shadow's answers are compared, never applied. A canary decides for a share of the programs, and is removed if they fare worse. Both can be promoted, and rolled back.",
    ],
  },
  {
    page: "policies",
    target: '.nav[href$="/what-if"]',
    title: "And if another one had decided?",
    text: [
      "What-if replay repeats recorded work under other policies in virtual time, shows the first decisions that differ, and can make the winner a canary.",
      "Ctrl K finds every page, every program, and this tour.",
    ],
  },
];
