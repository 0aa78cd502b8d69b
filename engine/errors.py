"""The closed set of errors that a caller of the engine may have to catch.

`code` is stable: clients and metrics may rely on it. One table in `server/` has the HTTP status codes.
"""


class ConvoyError(Exception):
    """Base class. A message names the problem and the remedy."""

    code = "internal"


class InvalidRequest(ConvoyError):
    """The request is invalid and can never succeed."""

    code = "invalid_request"


class UnknownModel(ConvoyError):
    """There is no model of that name, or for these languages."""

    code = "unknown_model"


class TooLarge(ConvoyError):
    """The request (one text, or a whole group) exceeds a limit of this server."""

    code = "too_large"


class Overloaded(ConvoyError):
    """The queue is full; try again after `retry_after` seconds."""

    code = "overloaded"

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class WouldBeLate(Overloaded):
    """The deadline would pass in the queue; a request after `retry_after` seconds should be in time."""

    code = "would_be_late"


class DeadlineExceeded(ConvoyError):
    """The request's deadline passed before its answer was complete."""

    code = "deadline_exceeded"


class Cancelled(ConvoyError):
    """The caller has cancelled the request."""

    code = "cancelled"


class Stopping(ConvoyError):
    """The server is draining and takes no new requests."""

    code = "stopping"

    def __init__(
        self, message: str = "the server is stopping: send the request again, elsewhere or later"
    ) -> None:
        super().__init__(message)


class Unavailable(ConvoyError):
    """The model is not in memory and can't be loaded now; the next use tries again.

    retry_after: seconds after which a retry may succeed, if known.
    """

    code = "model_unavailable"

    def __init__(self, message: str, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class ExecutorFailed(ConvoyError):
    """The backend failed while this request was in flight."""

    code = "executor_failed"


class DeviceLost(ConvoyError):
    """This process can't use its device any more: the process ends, and a supervisor starts another."""

    code = "device_lost"

    def __init__(
        self,
        message: str = "the device of this server is lost and the server restarts: send the request again, "
        "elsewhere or later",
    ) -> None:
        super().__init__(message)


class BundleError(ConvoyError):
    """A bundle is missing or damaged, or does not fit this version or device."""

    code = "bundle"


class ConfigError(BundleError):
    """A configuration has an unknown, missing or impossible value."""

    code = "config"


class CheckpointError(ConvoyError):
    """A foreign checkpoint can't be imported; the message lists every reason found."""

    code = "checkpoint"
