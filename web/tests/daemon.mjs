// A daemon of a test's own, which it may kill.
import { spawn } from "node:child_process";
import { once } from "node:events";

/** Starts a daemon over the store in a folder; port 0 takes any that is free. */
export async function startDaemon(binary, folder, { port = 0, set = {} } = {}) {
  const all = { "store.path": `${folder}/console.db`, ...set };
  const settings = ["--listen", `127.0.0.1:${port}`];
  for (const [key, value] of Object.entries(all)) settings.push("--set", `${key}=${value}`);
  const child = spawn(binary, ["up", "--engines", "1", ...settings], {
    stdio: ["ignore", "pipe", "pipe"],
  });
  const url = await new Promise((resolve, reject) => {
    let told = "";
    const listen = (text) => {
      told += text;
      const [, address] = /^treadle listens on (\S+)/m.exec(told) ?? [];
      if (address) resolve(address);
    };
    child.stdout.on("data", listen);
    child.stderr.on("data", listen);
    child.on("error", reject);
    child.on("exit", (code) => reject(new Error(`the daemon ended with ${code}: ${told}`)));
  });
  return {
    url,
    /** Stops it where it is, as a machine without memory does, or lets it go on. */
    freeze: (frozen) => child.kill(frozen ? "SIGSTOP" : "SIGCONT"),
    /** Ends it at once, as a crash does. */
    kill: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill("SIGKILL");
      await once(child, "exit");
    },
  };
}
