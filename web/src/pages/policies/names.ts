// Names of worlds and of policies.

export const WORLDS = [
  "prediction",
  "priority",
  "placement",
  "allocation",
  "eviction",
  "reward",
  "shaping",
];

/** A policy without its digest. */
export function shortPolicy(policy: string): string {
  return policy.split("+")[0] ?? policy;
}

/** The digest of a policy by which the API finds it; null for built-in ones. */
export function digestOf(policy: string): string | null {
  const digest = policy.split("+")[1];
  return digest && digest !== "native" ? digest : null;
}
