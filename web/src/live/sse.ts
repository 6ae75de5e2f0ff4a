// Server-sent events over fetch, because EventSource can't send a token.

export interface Message {
  id: string | null;
  data: string;
}

/** Takes chunks of an event stream and returns the messages that they complete. */
export class SseParser {
  private rest = "";
  private id: string | null = null;
  private data: string[] = [];

  push(chunk: string): Message[] {
    const lines = (this.rest + chunk).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop() ?? "";
    const messages: Message[] = [];
    for (const line of lines) {
      const message = this.line(line);
      if (message) messages.push(message);
    }
    return messages;
  }

  private line(line: string): Message | null {
    if (line === "") {
      if (this.data.length === 0) return null;
      const message = { id: this.id, data: this.data.join("\n") };
      this.data = [];
      return message;
    }
    const colon = line.indexOf(":");
    const field = colon < 0 ? line : line.slice(0, colon);
    const value = colon < 0 ? "" : line.slice(colon + 1).replace(/^ /, "");
    if (field === "data") this.data.push(value);
    if (field === "id") this.id = value;
    return null;
  }
}
