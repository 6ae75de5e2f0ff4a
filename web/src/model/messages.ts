// The messages in a request or an answer that was kept, whichever of the usual shapes it has.

export interface Message {
  role: string;
  text: string;
}

/** The messages; null where the text has another shape and is shown as it is. */
export function messagesOf(text: string): Message[] | null {
  if (/^\s*(event:|data:)/.test(text)) return streamed(text);
  const body = parsed(text);
  if (!isObject(body)) return null;
  if (Array.isArray(body.messages)) return body.messages.map(messageOf);
  if (Array.isArray(body.choices)) return body.choices.map(choiceOf);
  if (typeof body.prompt === "string") return [{ role: "prompt", text: body.prompt }];
  if (Array.isArray(body.content)) return [messageOf(body)];
  return null;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return null;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

function messageOf(message: unknown): Message {
  if (!isObject(message)) return { role: "unknown", text: JSON.stringify(message) };
  const calls = message.tool_calls ? `\n${JSON.stringify(message.tool_calls, null, 2)}` : "";
  return {
    role: typeof message.role === "string" ? message.role : "assistant",
    text: contentOf(message.content) + calls,
  };
}

function contentOf(content: unknown): string {
  if (typeof content === "string") return content;
  if (content === null || content === undefined) return "";
  if (!Array.isArray(content)) return JSON.stringify(content);
  return content
    .map((part) =>
      isObject(part) && typeof part.text === "string" ? part.text : JSON.stringify(part),
    )
    .join("\n");
}

function choiceOf(choice: unknown): Message {
  if (!isObject(choice)) return { role: "assistant", text: JSON.stringify(choice) };
  if (choice.message !== undefined) return messageOf(choice.message);
  return { role: "assistant", text: typeof choice.text === "string" ? choice.text : "" };
}

/** Puts the pieces of an event stream together. */
function streamed(text: string): Message[] | null {
  let answer = "";
  for (const line of text.split("\n")) {
    const chunk = line.startsWith("data:") ? parsed(line.slice(5)) : null;
    if (!isObject(chunk)) continue;
    const choice = Array.isArray(chunk.choices) ? chunk.choices[0] : null;
    const delta = isObject(choice) ? (choice.delta ?? choice) : chunk.delta;
    if (!isObject(delta)) continue;
    for (const key of ["reasoning_content", "content", "text"])
      if (typeof delta[key] === "string") answer += delta[key];
  }
  return answer === "" ? null : [{ role: "assistant", text: answer }];
}
