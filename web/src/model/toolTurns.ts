// Which tools a member called between its steps, from the messages of a later request.

import type { MemberSteps } from "../api/sample";
import type { StepView } from "../api/types";

/** Numbers of steps in a row: each has the one before in its prompt. */
export function chainsOf({ steps, breaks, excluded }: MemberSteps): number[][] {
  const apart = new Set(breaks.map(({ step }) => step));
  const left = new Set(excluded.map(({ step }) => step));
  const chains: number[][] = [];
  steps.forEach(({ number, prompt }, at) => {
    const before = steps[at - 1];
    const goesOn =
      before !== undefined &&
      !apart.has(number) &&
      !left.has(before.number) &&
      prompt.length >= before.prompt.length + before.output.length;
    if (goesOn) chains.at(-1)?.push(number);
    else chains.push([number]);
  });
  return chains.filter((chain) => chain.length > 1);
}

/** The ids that a program's steps have elsewhere, by their numbers among the captured ones: both are
 *  in their order, and not every step is captured. */
export function stepIds(
  captured: MemberSteps["steps"],
  all: Pick<StepView, "step" | "prompt_tokens" | "output_tokens">[],
): Map<number, number> {
  const ids = new Map<number, number>();
  let next = 0;
  for (const { step, prompt_tokens, output_tokens } of all) {
    const wanted = captured[next];
    if (prompt_tokens !== wanted?.prompt.length || output_tokens !== wanted.output.length) continue;
    ids.set(wanted.number, step);
    next += 1;
  }
  return ids;
}

interface Call {
  id: string | null;
  name: string;
}

/** What stands in a conversation: an answer with the calls in it, or the result of a call. */
type Entry = { answer: Call[] } | { result: Call };

type Fields = Record<string, unknown>;

function fieldsOf(value: unknown): Fields {
  return typeof value === "object" && value !== null ? (value as Fields) : {};
}

function listOf(value: unknown): Fields[] {
  return Array.isArray(value) ? value.map(fieldsOf) : [];
}

function text(...values: unknown[]): string | null {
  const found = values.find((value) => typeof value === "string" && value !== "");
  return typeof found === "string" ? found : null;
}

function callOf(call: Fields): Call {
  const name = text(call.name, fieldsOf(call.function).name) ?? "unnamed";
  return { id: text(call.call_id, call.id), name };
}

/**
 * The tools whose results follow each of the last `turns` answers in a request's messages. Null if
 * there are fewer answers, or the text has no messages.
 */
export function toolsAfter(request: string, turns: number): string[][] | null {
  const entries = entriesOf(request);
  if (!entries) return null;
  const names = new Map<string, string>();
  const after: string[][] = [];
  for (const entry of entries) {
    if ("answer" in entry) {
      after.push([]);
      for (const { id, name } of entry.answer) if (id) names.set(id, name);
    } else {
      const { id, name } = entry.result;
      after.at(-1)?.push((id ? names.get(id) : undefined) ?? name);
    }
  }
  return after.length >= turns && turns > 0 ? after.slice(-turns) : null;
}

function entriesOf(request: string): Entry[] | null {
  let body: Fields;
  try {
    body = fieldsOf(JSON.parse(request));
  } catch {
    return null;
  }
  if (Array.isArray(body.messages)) return listOf(body.messages).flatMap(ofMessage);
  if (Array.isArray(body.input)) return ofItems(listOf(body.input));
  return null;
}

/** A message of chat completions, or of Anthropic's messages with their blocks. */
function ofMessage(message: Fields): Entry[] {
  const { role, content } = message;
  const blocks = listOf(content);
  if (role === "assistant") {
    const uses = blocks.filter(({ type }) => type === "tool_use");
    return [{ answer: [...listOf(message.tool_calls), ...uses].map(callOf) }];
  }
  const resultOf = (id: unknown, name: unknown): Entry => ({
    result: { id: text(id), name: text(name) ?? "unnamed" },
  });
  if (role === "tool") return [resultOf(message.tool_call_id, message.name)];
  const results = blocks.filter(({ type }) => type === "tool_result");
  return results.map(({ tool_use_id }) => resultOf(tool_use_id, null));
}

/** Items of a request to `/v1/responses`: what an answer had comes in a row. */
function ofItems(items: Fields[]): Entry[] {
  const entries: Entry[] = [];
  for (const item of items) {
    const { type, role } = item;
    const last = entries.at(-1);
    if (type === "function_call" || type === "reasoning" || role === "assistant") {
      const calls = type === "function_call" ? [callOf(item)] : [];
      if (last && "answer" in last) last.answer.push(...calls);
      else entries.push({ answer: calls });
    } else if (type === "function_call_output") {
      entries.push({ result: { id: text(item.call_id), name: "unnamed" } });
    }
  }
  return entries;
}
