// Agents with tools, subagents and growing contexts, for tests and screenshots.
//
//   node tests/workload.mjs --daemon http://127.0.0.1:8300 --agents 40 --seconds 600
//
// A daemon that pauses and offloads under it:
//   treadle up --engines 3 --kv-tokens 40000 --time-scale 10 --set payloads.keep=all
//     --set kv.host_tokens_max=60000 --set kv.migration_tokens_per_s=200000
import { setTimeout as sleep } from "node:timers/promises";
import { parseArgs } from "node:util";

const { values } = parseArgs({
  options: {
    daemon: { type: "string", default: "http://127.0.0.1:8300" },
    agents: { type: "string", default: "40" },
    seconds: { type: "string", default: "600" },
  },
});
const end = Date.now() + Number(values.seconds) * 1000;
const TOOLS = ["bash", "pytest", "search", "edit"];
const TASKS = 37;
const SUBAGENT_SHARE = 0.1;
const FAILURE_SHARE = 0.08;
/** Programs without a reward. */
const UNREWARDED_SHARE = 0.1;
let opened = Date.now() % 100_000;

const between = (low, high) => Math.floor(low + Math.random() * (high - low));
const words = (count) =>
  Array.from(
    { length: count },
    (_, at) => ["patch", "test", "file", "error", "trace", "module"][(at * 7 + count) % 6],
  ).join(" ");

async function send(method, path, job, body) {
  const response = await fetch(values.daemon + path, {
    method,
    headers: { "content-type": "application/json", "x-treadle-job": job },
    body: JSON.stringify(body),
  });
  return response.text();
}

const post = (path, job, body) => send("POST", path, job, body);

function answerOf(text, stream) {
  if (!stream) return JSON.parse(text).choices?.[0]?.message?.content ?? "";
  return text
    .split("\n")
    .filter((line) => line.startsWith("data: {"))
    .map((line) => JSON.parse(line.slice(6)).choices?.[0]?.delta?.content ?? "")
    .join("");
}

async function step(job, program, messages) {
  const stream = opened % 2 === 0;
  const body = { model: "treadle-sim", ...program, max_tokens: between(60, 700), messages, stream };
  return answerOf(await post("/v1/chat/completions", job, body), stream);
}

async function tool(job, program_id, turn, program) {
  const name = TOOLS[between(0, TOOLS.length)];
  const action = { program_id, action_id: `${program_id}-${turn}`, tool: name };
  await post("/api/v1/actions", job, { ...action, event: "started" });
  if (!program.parent_program_id && Math.random() < SUBAGENT_SHARE) await agent(job, program_id);
  else await sleep(between(50, 1500) * (Math.random() < 0.1 ? 4 : 1));
  const ok = Math.random() > FAILURE_SHARE;
  await post("/api/v1/actions", job, { ...action, event: "finished", ok });
  return `Output of ${name}: ${words(between(80, 900))}`;
}

async function agent(job, parent) {
  opened += 1;
  const program_id = `${job}/task-${String(opened % TASKS).padStart(3, "0")}/s${opened}`;
  const program = { program_id, ...(parent ? { parent_program_id: parent } : {}) };
  const messages = [
    { role: "system", content: `You are a coding agent. ${words(220)}` },
    { role: "user", content: `Fix issue ${opened % TASKS}. ${words(120)}` },
  ];
  const turns = between(4, 18);
  for (let turn = 0; turn < turns && Date.now() < end; turn += 1) {
    messages.push({ role: "assistant", content: await step(job, program, messages) });
    messages.push({ role: "user", content: await tool(job, program_id, turn, program) });
  }
  if (Math.random() > UNREWARDED_SHARE) await reward(job, program_id);
  await post("/programs/release", job, { program_id });
}

/** Reports a program's reward, spread evenly over the hundredths up to 1. */
function reward(job, program_id) {
  const path = `/api/v1/programs/${encodeURIComponent(program_id)}/reward`;
  return send("PUT", path, job, { reward: between(0, 101) / 100 });
}

async function seat(at) {
  while (Date.now() < end) {
    await agent(at % 3 ? "swe-grpo" : "math-ppo").catch(() => sleep(1000));
  }
}

await Promise.all(Array.from({ length: Number(values.agents) }, (_, at) => seat(at)));
