// Requests as commands for a shell.

/** A curl command for the same request, with the token in TREADLE_TOKEN. */
export function curlOf(path: string): string {
  const url = `${window.location.origin}${path}`.replaceAll("'", "%27");
  return `curl -H "Authorization: Bearer $TREADLE_TOKEN" '${url}'`;
}
