"""Faults of convoy_client: name, file, old text, new text, arguments of pytest (`tests.mutants`)."""

FAULTS = [
    (
        "the client waits less than the server says",
        "convoy_client/exchange.py",
        "return backoff if retry_after is None else retry_after + backoff",
        "return backoff",
        "tests/convoy_client/test_errors.py",
    ),
    (
        "the client gives up at the first refusal",
        "convoy_client/exchange.py",
        "RETRIED_STATUSES: Final = frozenset({429, 503})",
        "RETRIED_STATUSES: Final = frozenset({503})",
        "tests/convoy_client/test_errors.py",
    ),
    (
        "an event of several lines loses all but the last",
        "convoy_client/events.py",
        '"\\n".join(self._data)',
        "self._data[-1]",
        "tests/convoy_client/test_streams.py",
    ),
    (
        "the client tries again after its own time-out",
        "convoy_client/exchange.py",
        'reason}"), not late',
        'reason}"), True',
        "tests/server/test_rare_faults.py -k own_time_out",
    ),
    (
        "names in the client's paths are not quoted",
        "convoy_client/calls.py",
        "{quote(name, safe='')}",
        "{name}",
        "tests/server/test_rare_faults.py -k quoted",
    ),
    (
        "lists of an answer are of other texts",
        "convoy_client/results.py",
        " or any(len(value) != count for value in lists.values()):",
        ":",
        "tests/convoy_client/test_errors.py -k missing_answers",
    ),
    (
        "a field of another kind is taken as it is",
        "convoy_client/results.py",
        "return value if isinstance(value, kind) else default",
        "return value",
        "tests/convoy_client/test_errors.py -k another_type",
    ),
    (
        "a stream without its end is whole",
        "convoy_client/client.py",
        '                        yield part\n                        if isinstance(part, Translation):\n                            return\n            except httpx.TransportError as error:\n                raise Unreachable(f"the stream broke: {error or type(error).__name__}") from error\n        raise Unreachable(CUT)',
        '                        yield part\n                        if isinstance(part, Translation):\n                            return\n            except httpx.TransportError as error:\n                raise Unreachable(f"the stream broke: {error or type(error).__name__}") from error',
        "tests/convoy_client/test_streams.py",
    ),
    (
        "no texts are a request",
        "convoy_client/client.py",
        "        return self._ask(calls.summarize_all(texts, options), timeout) if texts else []\n\n    def score(",
        "        return self._ask(calls.summarize_all(texts, options), timeout)\n\n    def score(",
        "tests/convoy_client/test_client.py -k no_request",
    ),
    (
        "an error has no status",
        "convoy_client/errors.py",
        "self.message, self.status, self.retry_after = message, status, retry_after",
        "self.message, self.status, self.retry_after = message, status, None",
        "tests/convoy_client/test_errors.py -k time_to_wait",
    ),
]
