// Who the console speaks as. The one module that knows how a caller is authenticated: today by a
// bearer token of this tab.

const KEY = "treadle.token";

let token: string | null = readStored();
let tenant: string | null = null;
let ended = false;
const listeners = new Set<() => void>();

function readStored(): string | null {
  try {
    return sessionStorage.getItem(KEY);
  } catch {
    return null;
  }
}

/** Headers that authenticate a request, and name the tenant to act in. */
export function authHeaders(): Record<string, string> {
  if (token === null) return {};
  const headers = { authorization: `Bearer ${token}` };
  return tenant === null ? headers : { ...headers, "x-treadle-tenant": tenant };
}

/** Acts in another tenant; for tokens of the whole daemon. */
export function actIn(name: string): void {
  tenant = name;
  for (const listener of listeners) listener();
}

/** Whether the console has a token, valid or not. */
export function hasToken(): boolean {
  return token !== null;
}

/** Takes a token for this tab. It is gone when the tab is closed. */
export function signIn(value: string): void {
  ended = false;
  tenant = null;
  token = value.trim();
  try {
    sessionStorage.setItem(KEY, token);
  } catch {
    // Without storage the token lasts until the page is left.
  }
  for (const listener of listeners) listener();
}

/** Forgets the token. */
export function signOut(): void {
  ended = false;
  forget();
}

/** The daemon refused these headers: if they are still in use, the session is over. */
export function refused(headers: Record<string, string>): void {
  if (token === null || headers.authorization !== authHeaders().authorization) return;
  ended = true;
  forget();
}

/** Whether the daemon ended the session, and no other one has begun. */
export function hasEnded(): boolean {
  return ended;
}

function forget(): void {
  tenant = null;
  token = null;
  try {
    sessionStorage.removeItem(KEY);
  } catch {
    // There was nothing to forget.
  }
  for (const listener of listeners) listener();
}

/** Calls back whenever the caller changes. */
export function onSessionChange(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}
