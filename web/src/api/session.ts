// Who the console speaks as. The token itself is in a cookie that no script reads; here is only
// whether there is one, for all tabs, and the tenant that this one acts in.

const KEY = "treadle.signed-in";
const PATH = "/api/v1/session";

let tenant: string | null = null;
let ended = false;
const listeners = new Set<() => void>();

function tell(): void {
  for (const listener of listeners) listener();
}

function mark(signedIn: boolean): void {
  try {
    if (signedIn) localStorage.setItem(KEY, "yes");
    else localStorage.removeItem(KEY);
  } catch {
    // Without storage the cookie counts all the same.
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

/** The daemon has taken a token and set its cookie. */
export function begun(): void {
  ended = false;
  tenant = null;
  mark(true);
  tell();
}

/** Ends the session; the token stays good. */
export async function signOut(): Promise<void> {
  ended = false;
  await forget();
}

/** The daemon does not take the cookie any more: the session is over. */
export function refused(): void {
  if (!isSignedIn()) return;
  ended = true;
  void forget();
}

/** Whether the daemon ended the session, and no other one has begun. */
export function hasEnded(): boolean {
  return ended;
}

async function forget(): Promise<void> {
  tenant = null;
  mark(false);
  await fetch(PATH, { method: "DELETE" }).catch(() => undefined);
  tell();
}

/** Calls back whenever the caller changes, in another tab too. */
export function onSessionChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

globalThis.addEventListener?.("storage", (event) => {
  if (event.key === KEY) tell();
});
