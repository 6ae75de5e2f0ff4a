// The checks of an uploaded policy, in the order in which the daemon makes them.

export interface Check {
  title: string;
  about: string;
  codes: string[];
}

export const CHECKS: Check[] = [
  {
    title: "Signature",
    about: "a trusted key signed it, where one is needed",
    codes: ["signature-"],
  },
  {
    title: "WebAssembly",
    about: "it is a valid binary and not too large",
    codes: ["empty", "too-large", "not-wasm", "truncated", "invalid-wasm"],
  },
  {
    title: "Contract",
    about: "it imports nothing but treadle:policy/host, of a version that is known",
    codes: [
      "no-wit",
      "contract-too-large",
      "forbidden-import",
      "foreign-package",
      "unknown-version",
      "no-code",
      "not-a-component",
    ],
  },
  {
    title: "World",
    about: "it exports one world's interface",
    codes: ["wrong-world", "world-mismatch"],
  },
  { title: "Compilation", about: "the compiler accepts it in time", codes: ["compile-"] },
  {
    title: "Description",
    about: "name, version, columns and the schema of its configuration can be used",
    codes: ["config-refused", "bad-description", "unknown-column"],
  },
  {
    title: "Trial calls",
    about: "it answers 0, 1 and 100 rows within its deadline",
    codes: ["smoke-", "too-slow"],
  },
];

export type Verdict = "passed" | "failed" | "not reached";

/** How each check went, given the code of the refusal, if there was one. */
export function verdictsOf(refusal: string | null): Verdict[] {
  if (refusal === null) return CHECKS.map(() => "passed");
  const failed = CHECKS.findIndex((check) =>
    check.codes.some((code) => (code.endsWith("-") ? refusal.startsWith(code) : refusal === code)),
  );
  if (failed < 0) return CHECKS.map(() => "not reached");
  return CHECKS.map((_, at) => (at < failed ? "passed" : at === failed ? "failed" : "not reached"));
}
