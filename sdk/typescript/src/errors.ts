/** Why a policy could not answer. */

/** What the component model knows of an error. */
export interface Failure {
  code: string;
  message: string;
}

/**
 * An error of a policy: a stable code for programs (lower-case words joined by hyphens), a
 * sentence for people that says what is wrong and what to do about it.
 */
export class PolicyError extends Error {
  readonly code: string;
  /** The form in which it leaves the component. */
  readonly payload: Failure;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
    this.payload = { code, message };
  }

  /** The configuration is not acceptable; name the key and the remedy. */
  static invalidConfig(message: string): PolicyError {
    return new PolicyError("invalid-config", message);
  }

  /** The columns of a call contradict each other or the configuration. */
  static invalidInput(message: string): PolicyError {
    return new PolicyError("invalid-input", message);
  }

  /** Anything else. */
  static failed(message: string): PolicyError {
    return new PolicyError("failed", message);
  }

  /** The policy leaves the decision to the host, which counts no fault. */
  static notSupported(): PolicyError {
    return new PolicyError("not-supported", "this policy leaves the decision to the host; nothing needs to be done");
  }
}
