"""Faults of server/observing, as (name, file, old, new, pytest arguments), for `tests.mutants`."""

FAULTS = [
    (
        "what a client calls its request goes into the log as it is",
        "server/observing/context.py",
        "header if ID.fullmatch(header) else",
        "header if header else",
        "tests/server/test_telemetry.py -k no_request_id_can_forge_a_line_of_a_log_or_a_header",
    ),
    (
        "lines of the log in JSON do not name their request",
        "server/observing/logs.py",
        '            entry["request_id"] = context.id\n',
        "            pass\n",
        "tests/server/test_telemetry.py -k json_logs_are_an_object_a_line_and_name_the_request",
    ),
    (
        "what a client does wrong is a failure in traces",
        "server/observing/tracing.py",
        "if outcome == FAILED:",
        "if status >= 400:",
        "tests/server/test_telemetry.py -k where_the_time",
    ),
    (
        "bodies are not counted",
        "server/observing/access_log.py",
        'self.received += len(message.get("body", b""))',
        'self.received = len(message.get("body", b""))',
        "tests/server/test_access_log.py",
    ),
    (
        "the name of a translated file is logged",
        "server/observing/access_log.py",
        'return quote(folder + separator, errors="replace") + ("..." if separator else "")',
        'return quote(path, errors="replace")',
        "tests/server/test_access_log.py",
    ),
    (
        "a path of any length is logged",
        "server/observing/access_log.py",
        "path[:LONGEST_PATH]",
        "path",
        "tests/server/test_access_log.py",
    ),
]
