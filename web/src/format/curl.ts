// Requests as commands for a shell.

/** The command that asks the daemon for the same, for whoever has a token in TREADLE_TOKEN. */
export function curlOf(path: string): string {
  const url = `${window.location.origin}${path}`.replaceAll("'", "%27");
  return `curl -H "Authorization: Bearer $TREADLE_TOKEN" '${url}'`;
}
