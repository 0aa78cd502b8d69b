"""Faults for engine/repository: (name, file, old, new, pytest arguments). `tests.mutants` injects them."""

FAULTS = [
    (
        "memory that is being freed counts twice",
        "engine/repository/budget.py",
        "lacking -= sum(m.cost for",
        "lacking -= 2 * sum(m.cost for",
        "tests/engine/repository/test_budget.py -k counted_once",
    ),
    (
        "a bundle that is missing in one scan is removed",
        "engine/repository/folders.py",
        "for path in sorted(lacking & self._missing):",
        "for path in sorted(lacking):",
        "tests/server/test_folders.py -k bundle_missing_during_one_scan_stays_served",
    ),
    (
        "the sentence limit of a bundle is ignored",
        "engine/answers/opening.py",
        "        max_sentence_tokens=bundle.max_sentence_tokens,\n",
        "",
        "tests/engine/answers/test_api.py -k without_sentence_ends",
    ),
    (
        "a frame may be of any size",
        "engine/repository/ipc/frames.py",
        "if size > MAX_FRAME_BYTES:",
        "if size > 1 << 40:",
        "tests/engine/repository/ipc/test_connections.py -k at_the_head_of_a_frame",
    ),
    (
        "cancelled requests are waited for",
        "engine/repository/ipc/connections.py",
        "                connection.remove_job(number, job)\n",
        "",
        "tests/engine/repository/ipc/test_connections.py -k full_queue",
    ),
    (
        "only the fault of the first process is reported",
        "engine/repository/figures.py",
        "fault=one.fault or other.fault",
        "fault=one.fault",
        "tests/engine/repository/test_repository.py -k fault_of_either",
    ),
    (
        "a pivot needs no common language",
        "engine/repository/catalogue.py",
        'before.info.task == after.info.task == "translate" and before.target == after.source',
        'before.info.task == after.info.task == "translate"',
        "tests/engine/repository/test_catalogue.py",
    ),
    (
        "a text of characters counts four for a token",
        "engine/repository/catalogue.py",
        "(1 if limits.vocab <= CHARACTER_VOCABULARY else TOKEN_CHARACTERS)",
        "TOKEN_CHARACTERS",
        "tests/engine/repository/test_catalogue.py",
    ),
    (
        "the second model of a route may write any language",
        "engine/repository/catalogue.py",
        "and begins and last.directions.fit(None, target)",
        "and begins",
        "tests/engine/repository/test_catalogue.py",
    ),
    (
        "an unknown order is taken as settled",
        "engine/repository/ipc/orders.py",
        'raise InvalidRequest(f"no order {verb!r} is known")',
        "pass",
        "tests/engine/repository/ipc/test_orders.py",
    ),
]
