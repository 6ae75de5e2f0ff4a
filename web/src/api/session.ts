// The console's session. The token itself is in a cookie that no script can read; this stores only
// whether there is one, for all tabs, and the tenant that this tab acts in.

const KEY = "treadle.signed-in";
const PATH = "/api/v1/session";

let tenant: string | null = null;
let ended = false;
let generation = 0;
const listeners = new Set<() => void>();

/** Changes with each beginning and end of a session. */
export function sessionGeneration(): number {
  return generation;
}

function tell(): void {
  generation += 1;
  for (const listener of listeners) listener();
}

function mark(signedIn: boolean): void {
  try {
    if (signedIn) localStorage.setItem(KEY, "yes");
    else localStorage.removeItem(KEY);
  } catch {
    // Without storage the cookie still works.
  }
}

/** Headers that name the tenant to act in. */
export function tenantHeaders(): Record<string, string> {
  return tenant === null ? {} : { "x-treadle-tenant": tenant };
}

/** Acts in another tenant; for tokens of the whole daemon. */
export function actIn(name: string): void {
  tenant = name;
  tell();
}

/** Whether this browser has signed in. */
export function isSignedIn(): boolean {
  try {
    return localStorage.getItem(KEY) !== null;
  } catch {
    return false;
  }
}

/** Records that the daemon accepted a token and set its cookie. */
export function begun(): void {
  ended = false;
  tenant = null;
  mark(true);
  tell();
}

/**
 * Records that the daemon recognised the caller in that generation: a session of the identity
 * provider counts like any other.
 */
export function known(of: number): void {
  if (of === generation) mark(true);
}

/** Ends the session; the token stays valid. Fails if the daemon does not delete the cookie. */
export async function signOut(): Promise<void> {
  await takeBack();
  ended = false;
  forget();
}

/** Records that the daemon refused a request of that generation: its cookie, if any, is stale. */
export async function refused(of: number, code: string): Promise<void> {
  const signedIn = isSignedIn();
  if (of !== generation || (!signedIn && code === "token_missing")) return;
  // Others that are refused meanwhile are of this session too.
  generation += 1;
  ended ||= signedIn;
  await takeBack().catch(() => undefined);
  forget();
}

/** Whether the daemon ended the session, and no other one has begun. */
export function hasEnded(): boolean {
  return ended;
}

function forget(): void {
  tenant = null;
  mark(false);
  tell();
}

async function takeBack(): Promise<void> {
  const answer = await fetch(PATH, { method: "DELETE" });
  if (!answer.ok) throw new Error(`The daemon did not end the session (HTTP ${answer.status}).`);
}

/** Calls back whenever the caller changes, in another tab too. */
export function onSessionChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

globalThis.addEventListener?.("storage", (event) => {
  if (event.key === KEY) tell();
});
