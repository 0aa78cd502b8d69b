"""The closed set of errors a caller of the engine may have to catch.

`code` is stable: clients and metrics may rely on it. HTTP status codes live in `server/`, in one table.
"""


class ConvoyError(Exception):
    """Base class; the message says what is wrong and what to do about it."""

    code = "internal"


class InvalidRequest(ConvoyError):
    """The request can never succeed as it stands."""

    code = "invalid_request"


class UnknownModel(ConvoyError):
    """No model of that name, or none for that pair of languages, is loaded."""

    code = "unknown_model"


class TooLarge(ConvoyError):
    """The request (one text, or a whole group) exceeds what this server could ever hold."""

    code = "too_large"


class Overloaded(ConvoyError):
    """The queue is full; try again after `retry_after` seconds."""

    code = "overloaded"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class WouldBeLate(Overloaded):
    """The queue is so long that the deadline would pass in it; `retry_after` is when it should suffice."""

    code = "would_be_late"


class DeadlineExceeded(ConvoyError):
    """The request's deadline passed before its answer was complete."""

    code = "deadline_exceeded"


class Cancelled(ConvoyError):
    """The caller gave the request up."""

    code = "cancelled"


class Stopping(ConvoyError):
    """The server is draining and takes no new requests."""

    code = "stopping"

    def __init__(
        self, message: str = "the server is stopping: send the request again, elsewhere or later"
    ) -> None:
        super().__init__(message)


class Unavailable(ConvoyError):
    """The model is not in memory and can't be brought there now; the next use tries again.

    `retry_after`: seconds after which it is worth it, where they are known.
    """

    code = "model_unavailable"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ExecutorFailed(ConvoyError):
    """The backend raised while this request was in flight; others are not affected."""

    code = "executor_failed"


class DeviceLost(ConvoyError):
    """This process can't use its device any more: the process ends, and a supervisor starts another."""

    code = "device_lost"

    def __init__(
        self,
        message: str = "the device of this server is lost and it starts again: send the request again, "
        "elsewhere or later",
    ) -> None:
        super().__init__(message)


class BundleError(ConvoyError):
    """A bundle is missing, damaged, or does not fit this version or device."""

    code = "bundle"


class ConfigError(BundleError):
    """A configuration holds an unknown, missing or impossible value."""

    code = "config"


class CheckpointError(ConvoyError):
    """A foreign checkpoint can't be imported; the message lists every reason found."""

    code = "checkpoint"
