import { expect, test } from "vitest";
import type { MemberSteps } from "../api/sample";
import { chainsOf, stepIds, toolsAfter } from "./toolTurns";

const call = (id: string, name: string) => ({ id, type: "function", function: { name } });

test("chat completions name tools by the calls that results belong to", () => {
  const messages = [
    { role: "system", content: "you are" },
    { role: "assistant", content: "an example" },
    { role: "user", content: "go" },
    { role: "assistant", tool_calls: [call("a", "bash"), call("b", "read")] },
    { role: "tool", tool_call_id: "b", content: "…" },
    { role: "tool", tool_call_id: "a", content: "…" },
    { role: "assistant", content: null, tool_calls: [call("c", "edit")] },
    { role: "tool", tool_call_id: "c", content: "…" },
    { role: "assistant", content: "done?" },
    { role: "user", content: "no" },
  ];
  const request = JSON.stringify({ messages });
  expect(toolsAfter(request, 3)).toEqual([["read", "bash"], ["edit"], []]);
  expect(toolsAfter(request, 4)?.[0]).toEqual([]);
  expect(toolsAfter(request, 5)).toBeNull();
});

test("a result without a known call has its own name, or none", () => {
  const messages = [
    { role: "assistant", content: "x" },
    { role: "tool", name: "grep", tool_call_id: "lost" },
    { role: "tool", tool_call_id: "lost" },
  ];
  expect(toolsAfter(JSON.stringify({ messages }), 1)).toEqual([["grep", "unnamed"]]);
});

test("Anthropic's blocks name tools", () => {
  const messages = [
    { role: "assistant", content: [{ type: "tool_use", id: "t1", name: "search" }] },
    { role: "user", content: [{ type: "tool_result", tool_use_id: "t1", content: "…" }] },
    { role: "assistant", content: [{ type: "text", text: "so" }] },
  ];
  expect(toolsAfter(JSON.stringify({ messages }), 2)).toEqual([["search"], []]);
});

test("items of /v1/responses that one answer had count as one", () => {
  const input = [
    { role: "user", content: "go" },
    { type: "reasoning" },
    { type: "function_call", call_id: "c1", id: "fc_1", name: "bash" },
    { type: "function_call_output", call_id: "c1", output: "…" },
    { type: "message", role: "assistant", content: [] },
    { role: "user", content: "and" },
  ];
  expect(toolsAfter(JSON.stringify({ input }), 2)).toEqual([["bash"], []]);
});

test("other texts have no tools", () => {
  for (const request of ["{", "[]", "null", '{"prompt": "x"}', '{"messages": []}'])
    expect(toolsAfter(request, 1)).toBeNull();
});

test("captured steps are found among those of the program by their tokens", () => {
  const captured = [2, 6].map((length, number) => ({
    ...{ number, version: 0, delivery: "complete", logprobs: [] },
    ...{ prompt: Array<number>(length).fill(1), output: [1] },
  }));
  const row = (step: number, prompt_tokens: number, output_tokens: number) => ({
    ...{ step, prompt_tokens, output_tokens },
  });
  const all = [row(50, 2, 0), row(52, 2, 1), row(57, 4, 1), row(60, 6, 1)];
  expect([...stepIds(captured, all)]).toEqual([
    [0, 52],
    [1, 60],
  ]);
});

test("steps are in a row as long as each has the one before in its prompt", () => {
  const step = (number: number, prompt: number, output = 2) => ({
    ...{ number, version: 0, delivery: "complete", logprobs: [] },
    ...{ prompt: Array<number>(prompt).fill(1), output: Array<number>(output).fill(2) },
  });
  const member: MemberSteps = {
    ...{ program: "p", group: "g", end: null, reward: null, sample: null, sequences: [] },
    steps: [step(0, 2), step(1, 6), step(2, 7), step(3, 12), step(4, 20), step(5, 30), step(6, 40)],
    excluded: [{ step: 5, reason: "its client asked again" }],
    breaks: [{ step: 4, kind: "edited" }],
  };
  // Step 2 branches off, 4 begins anew, and nobody continues 5.
  expect(chainsOf(member)).toEqual([
    [0, 1],
    [2, 3],
    [4, 5],
  ]);
});
