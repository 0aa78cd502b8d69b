"""Faults of server/grpc, as (name, file, old, new, pytest arguments), for `tests.mutants`."""

FAULTS = [
    (
        "parts of a message over gRPC are not counted",
        "server/grpc/codec.py",
        "if count > MAX_FIELDS:",
        "if False:",
        "tests/server/contracts/test_grpc.py -k many_parts",
    ),
    (
        "a call of gRPC may name any header",
        "server/grpc/bridge.py",
        "if key in FORWARDED and isinstance(value, str)",
        "if isinstance(value, str)",
        "tests/server/test_wider_faults.py -k forwards",
    ),
    (
        "the sooner of two deadlines of a call does not count",
        "server/grpc/bridge.py",
        "if limit is None or not _sooner(limit, seconds):",
        "if limit is None:",
        "tests/server/test_wider_faults.py -k earlier_of_two_deadlines_applies",
    ),
    (
        "a version leads to another route",
        "server/grpc/servicer.py",
        'if not name or "/" in name or "/" in version:',
        'if not name or "/" in name:',
        "tests/server/contracts/test_grpc.py -k names_and_versions",
    ),
    (
        "fields of a choice are independent",
        "server/grpc/messages.py",
        "        descriptor.oneof_index = 0\n",
        "        pass\n",
        "tests/server/contracts/test_fields.py -k grpc",
    ),
]
