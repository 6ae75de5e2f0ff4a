"""Why a policy could not answer."""


class PolicyError(Exception):
    """An error of a policy: a stable code for programs, a sentence for people.

    `code` is lower-case words joined by hyphens; `message` says what is wrong and what
    to do about it.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message

    @classmethod
    def invalid_config(cls, message: str) -> "PolicyError":
        """The configuration is not acceptable; name the key and the remedy."""
        return cls("invalid-config", message)

    @classmethod
    def invalid_input(cls, message: str) -> "PolicyError":
        """The columns of a call contradict each other or the configuration."""
        return cls("invalid-input", message)

    @classmethod
    def failed(cls, message: str) -> "PolicyError":
        """Anything else."""
        return cls("failed", message)

    @classmethod
    def not_supported(cls) -> "PolicyError":
        """The policy leaves the decision to the host, which counts no fault."""
        return cls(
            "not-supported",
            "this policy leaves the decision to the host; nothing needs to be done",
        )
