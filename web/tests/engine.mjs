// A stand-in for an engine, only for tests: it serves one model, and answers each chat as its test
// says.
import { once } from "node:events";
import { createServer } from "node:http";

/** The model that it serves. */
export const MODEL = "stand-in";

/** An answer to a chat, with this count of tokens. */
export const answerWith = (usage) => ({
  status: 200,
  body: {
    ...{ id: "c", object: "chat.completion", created: 1, model: MODEL, usage },
    choices: [{ index: 0, message: { role: "assistant", content: "yes" }, finish_reason: "stop" }],
  },
});

/** Starts one; `answer` of what it returns is the status and the body of its next answers. */
export async function startEngine() {
  const engine = { answer: answerWith({}) };
  const server = createServer((request, response) => {
    const reply = ({ status = 200, body = {} }) => {
      response.writeHead(status, { "content-type": "application/json" });
      response.end(JSON.stringify(body));
    };
    request.resume().on("end", () => {
      if (request.method === "POST") return reply(engine.answer);
      const isList = request.url === "/v1/models";
      return reply(isList ? { body: { object: "list", data: [{ id: MODEL }] } } : {});
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  engine.url = `http://127.0.0.1:${server.address().port}`;
  engine.close = () => {
    server.closeAllConnections();
    server.close();
  };
  return engine;
}
