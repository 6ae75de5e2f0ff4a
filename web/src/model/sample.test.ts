import { expect, test } from "vitest";
import type { MemberStep, MemberSteps } from "../api/sample";
import {
  breakText,
  colorOf,
  figuresOf,
  logprobsText,
  PAGE_TOKENS,
  pageOf,
  rowOf,
  SCALE,
  stepList,
  stepsBy,
  tokenText,
  toolsText,
  turnsOf,
} from "./sample";

const step = (number: number, prompt: number[], output: number[], version = 3): MemberStep => ({
  ...{ number, prompt, output, version, delivery: "complete" },
  logprobs: output.map((_, at) => -at / 4),
});

/** Steps 0 and 1 are a sequence; step 3 continues step 0 too; step 4 begins anew; 2 is repeated. */
const SAMPLE: MemberSteps = {
  ...{ program: "p1-a", group: "p1", end: null, reward: null },
  sample: "sha256:ab",
  steps: [
    step(0, [1, 2], [3, 4]),
    step(1, [1, 2, 3, 4, 5, 6], [7], 4),
    { ...step(2, [9], [8]), delivery: "unknown" },
    step(3, [1, 2, 3, 4, 9], [7, 7]),
    step(4, [9], [6]),
  ],
  sequences: [
    {
      ids: [1, 2, 3, 4, 5, 6, 7],
      sampled: [
        { step: 0, start: 2, end: 4 },
        { step: 1, start: 6, end: 7 },
      ],
    },
    { ids: [1, 2, 3, 4, 9, 7, 7], sampled: [{ step: 3, start: 5, end: 7 }] },
    { ids: [9, 6], sampled: [{ step: 4, start: 1, end: 2 }] },
  ],
  excluded: [{ step: 2, reason: "its client asked again" }],
  breaks: [{ step: 4, kind: "compacted" }],
};

test("tokens in context are those of all sequences", () => {
  expect(figuresOf(SAMPLE)).toEqual({ context: 16, trained: 6, versions: [3, 4], mixed: 0 });
});

/** Weights changed in step 0 after its first token, and in step 1 nobody knows where. */
const CHANGED: MemberSteps = {
  ...SAMPLE,
  steps: SAMPLE.steps.map((one) => {
    if (one.number > 1) return one;
    const { length } = one.output;
    const versions =
      one.number === 0
        ? [
            { start: 0, end: 1, version: 3, newest: 3 },
            { start: 1, end: length, version: 4, newest: 4 },
          ]
        : [{ start: 0, end: length, version: 4, newest: 5 }];
    return { ...one, versions };
  }),
};

test("ranges of a step have their versions, and those that nobody knows are mixed", () => {
  expect(figuresOf(CHANGED)).toMatchObject({ versions: [3, 4, 5], mixed: 1 });
  const texts = turnsOf(CHANGED).map(({ versions }) => versions);
  expect(texts).toEqual(["3; 4", "4 to 5, mixed", "3", "3", "3"]);
  const row = rowOf(CHANGED, "0")?.row ?? { ids: [], sampled: [] };
  const tokens = pageOf(CHANGED, row, 0);
  expect(tokens.map(({ mark }) => mark).filter(Boolean)).toEqual([
    "step 0, version 3",
    "version 4",
    "step 1, version 4 to 5, mixed",
  ]);
  expect(tokens.map(({ by }) => by?.versions)).toEqual([
    ...[undefined, undefined, "3", "4", undefined, undefined, "4 to 5, mixed"],
  ]);
  // A page may begin within a range.
  expect(pageOf(CHANGED, row, 3)[0]).toMatchObject({ mark: "version 4", by: { logprob: -0.25 } });
});

test("tools stand before the turns that their results are in", () => {
  const tools = new Map([[1, ["bash", "read", "bash"]]]);
  expect(turnsOf(SAMPLE, tools).map((turn) => toolsText(turn.tools))).toEqual([
    ...["", "bash ×2, read", "", "", ""],
  ]);
});

test("each kind of log-probabilities is explained", () => {
  for (const kind of ["raw", "temperature", "processed", "mixed", "unknown"])
    expect(logprobsText(kind)).not.toMatch(/does not know/);
});

test("a turn tells what stood before it, where it is trained, and why not", () => {
  const rows = turnsOf(SAMPLE).map(({ before, trained, notes }) => [
    `${before.tokens} ${before.what}`,
    trained ? `${trained.sequence}:${trained.start}` : null,
    ...notes,
  ]);
  expect(rows).toEqual([
    ["2 prompt", "0:2"],
    ["2 observation", "0:6"],
    [
      "1 prompt",
      null,
      "not trained: its client asked again",
      "unknown whether its client got the whole answer",
    ],
    ["5 context", "1:5"],
    ["1 prompt", "2:1", "begins a sequence: compacted"],
  ]);
  expect(turnsOf(SAMPLE)[0]?.logprob).toBe(-0.125);
});

test("steps are listed by what is said of them", () => {
  const said: [string, number][] = [
    ["a", 1],
    ["b", 2],
    ["b", 3],
  ];
  expect(stepsBy(said)).toEqual([
    ["b", [2, 3]],
    ["a", [1]],
  ]);
  expect(stepList([3])).toBe("step 3");
  expect(stepList([1, 2, 3, 4, 5, 6, 7, 8, 9, 10])).toBe("steps 1, 2, 3, 4, 5, 6, 7, 8 and 2 more");
});

test("a URL names a sequence or a step; anything else is the first", () => {
  expect(rowOf(SAMPLE, "1")?.row).toBe(SAMPLE.sequences[1]);
  for (const name of [undefined, "7", "x", "step-9", "-1", "0.5"]) {
    expect(rowOf(SAMPLE, name)).toEqual({ name: "0", row: SAMPLE.sequences[0] });
  }
  const excluded = {
    name: "step-2",
    row: { ids: [9, 8], sampled: [{ step: 2, start: 1, end: 2 }] },
  };
  expect(rowOf(SAMPLE, "step-2")).toEqual(excluded);
  expect(rowOf({ ...SAMPLE, sequences: [] }, undefined)?.name).toBe("step-0");
  expect(rowOf({ ...SAMPLE, sequences: [], steps: [] }, "0")).toBeNull();
});

test("tokens know who sampled them, and versions are marked where they begin", () => {
  const row = rowOf(SAMPLE, "0")?.row ?? { ids: [], sampled: [] };
  const tokens = pageOf(SAMPLE, row, 0);
  expect(tokens.map((token) => token.by?.step ?? null)).toEqual([null, null, 0, 0, null, null, 1]);
  const marks = tokens.map((token) => token.mark);
  expect(marks.filter(Boolean)).toEqual(["step 0, version 3", "step 1, version 4"]);
  expect(marks[2]).toBe("step 0, version 3");
  expect(tokens.map(tokenText).slice(1, 4)).toEqual([
    "2, position 1, context",
    "3, position 2, log-probability 0, version 3, step 0",
    "4, position 3, log-probability -0.25, version 3, step 0",
  ]);
});

test("a page has its tokens only, with positions in the sequence", () => {
  const output = Array.from({ length: PAGE_TOKENS + 1 }, (_, at) => at);
  const long = step(0, [7], output);
  const sample = { ...SAMPLE, steps: [long, step(1, [7, ...output], [5])] };
  const end = output.length + 1;
  const sampled = [
    { step: 0, start: 1, end },
    { step: 1, start: end, end: end + 1 },
  ];
  const tokens = pageOf(sample, { ids: [7, ...output, 5], sampled }, PAGE_TOKENS);
  expect(tokens.map(({ id, at, mark }) => [id, at, mark])).toEqual([
    [PAGE_TOKENS - 1, PAGE_TOKENS, null],
    [PAGE_TOKENS, PAGE_TOKENS + 1, null],
    [5, PAGE_TOKENS + 2, "step 1"],
  ]);
  expect(tokens[0]?.by?.logprob).toBe(-(PAGE_TOKENS - 1) / 4);
});

test("colours change at the log-probabilities of the scale", () => {
  expect([0, -0.1, -0.2, -1, -3, -5, -100, null].map(colorOf)).toEqual([
    ...[0, 0, 1, 2, 3, 4, 4, null],
  ]);
  expect(SCALE.length).toBe(5);
});

test("each kind of break that the daemon counts has a text of its own", () => {
  const kinds = "repeated rerendered thinking_dropped edited compacted volatile other_agent other";
  const texts = kinds.split(" ").map(breakText);
  expect(new Set([...texts, breakText("later")]).size).toBe(9);
});
