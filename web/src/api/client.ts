// Requests to the daemon, typed by the generated schema.
import type { paths } from "./schema";
import { refused, sessionGeneration, tenantHeaders } from "./session";

type Method = "get" | "post" | "put" | "patch" | "delete";
type Json<T> = T extends { content: { "application/json": infer R } } ? R : never;
type Answer<Op> = Op extends { responses: infer R }
  ? R extends { 200: infer A }
    ? Json<A>
    : R extends { 201: infer A }
      ? Json<A>
      : R extends { 202: infer A }
        ? Json<A>
        : never
  : never;
type Operation<M extends Method, P extends keyof paths> = paths[P] extends { [K in M]: infer Op }
  ? Op
  : never;
type Body<Op> = Op extends { requestBody?: { content: { "application/json": infer B } } }
  ? B
  : never;
type Query<Op> = Op extends { parameters: { query?: infer Q } } ? Q : never;
type WithMethod<M extends Method> = {
  [P in keyof paths]: paths[P] extends { [K in M]: { responses: unknown } } ? P : never;
}[keyof paths];

export interface CallOptions<Op> {
  path?: Record<string, string | number>;
  query?: Query<Op>;
  body?: Body<Op>;
  signal?: AbortSignal;
}

/** A refusal by the daemon, or no answer at all (`status` 0). */
export class ApiError extends Error {
  override name = "ApiError";
  constructor(
    readonly status: number,
    readonly code: string,
    message: string,
    readonly details: Record<string, unknown> = {},
  ) {
    super(message);
  }
}

/** Builds a URL from a path of the schema. */
export function urlOf(
  path: string,
  values: Record<string, string | number> = {},
  query: Record<string, unknown> = {},
): string {
  const filled = path.replace(/\{(\w+)\}/g, (_, name: string) =>
    encodeURIComponent(String(values[name] ?? "")),
  );
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query)) {
    if (value !== undefined && value !== null && value !== "") search.set(key, String(value));
  }
  const text = search.toString();
  return text === "" ? filled : `${filled}?${text}`;
}

/** Sends a request and returns its answer, or throws an `ApiError`. */
export async function call<M extends Method, P extends WithMethod<M>>(
  method: M,
  path: P,
  options: CallOptions<Operation<M, P>> = {},
): Promise<Answer<Operation<M, P>>> {
  const url = urlOf(path, options.path, options.query as Record<string, unknown> | undefined);
  const init: RequestInit = { method: method.toUpperCase() };
  if (options.signal) init.signal = options.signal;
  if (options.body !== undefined) {
    init.body = JSON.stringify(options.body);
    init.headers = { "content-type": "application/json" };
  }
  const response = await send(url, init);
  return (await response.json()) as Answer<Operation<M, P>>;
}

/** Sends any request with the caller's credentials. */
export async function send(url: string, init: RequestInit = {}): Promise<Response> {
  const generation = sessionGeneration();
  let response: Response;
  try {
    response = await fetch(url, { ...init, headers: { ...init.headers, ...tenantHeaders() } });
  } catch (cause) {
    if (init.signal?.aborted) throw cause;
    throw new ApiError(0, "unreachable", "The daemon does not answer.");
  }
  if (!response.ok) {
    const error = await refusal(response);
    if (error.status === 401 && !url.startsWith("/api/v1/session")) {
      await refused(generation, error.code);
    }
    throw error;
  }
  return response;
}

async function refusal(response: Response): Promise<ApiError> {
  const text = await response.text().catch(() => "");
  try {
    const { error } = JSON.parse(text) as { error: Record<string, unknown> };
    return new ApiError(response.status, String(error.code), String(error.message), error);
  } catch {
    const unreachable = response.status >= 502 && response.status <= 504;
    return new ApiError(
      unreachable ? 0 : response.status,
      unreachable ? "unreachable" : "unexpected",
      unreachable ? "The daemon does not answer." : `Unexpected answer (HTTP ${response.status}).`,
    );
  }
}
