"""Faults of server, as (name, file, old, new, pytest arguments); see `tests.mutants`."""

FAULTS = [
    (
        "a full queue answers as an internal error",
        "server/errors.py",
        '    "overloaded": 429,\n',
        '    "overloaded": 500,\n',
        "tests/server/http",
    ),
    (
        "a folder goes while its process lives",
        "server/process/temporary.py",
        "            locks.lock(self._held.fileno())\n",
        "",
        "tests/server/files/test_storage.py -k test_folder_of_a_killed_process_is_removed_at_the_next_start",
    ),
    (
        "a folder that another start swept is used",
        "server/process/temporary.py",
        "            if self.path.exists():\n",
        "            if True:\n",
        "tests/server/files/test_storage.py -k test_folder_removed_before_its_lock_is_made_again",
    ),
    (
        "the first contract answers for all paths",
        "server/contract.py",
        "if path == p or (p.endswith",
        "if (p.endswith",
        "tests/server/callers/test_limits.py -k test_longest_matching_path_wins",
    ),
    (
        "the lag of the event loop is forgotten at once",
        "server/process/watchdog.py",
        "if began >= since), default=0.0)",
        "if began > since + 60), default=0.0)",
        "tests/server/http/test_slices.py -k 'test_lag_of_the_event_loop_is_measured or test_lag_is_in_the_metrics'",
    ),
    (
        "a cached answer of other options is taken",
        "server/cache.py",
        "_plain(options)))",
        "0))",
        "tests/server/test_cache.py -k cache_key_depends_on_everything_that_changes_an_answer",
    ),
    (
        "a head that comes byte by byte gets more time",
        "server/process/watchdog.py",
        "        if self._head_timer is None and not",
        ("        self._stop_head_timer()\n        if self._head_timer is None and not"),
        "tests/server/http/test_connection_limits.py -k test_slow_head_gets_no_more_time_for_each_byte",
    ),
    (
        "freed memory stays",
        "server/process/allocator.py",
        "if now > least + TRIM_BYTES and now != seen:",
        "if False:",
        "tests/server/http/test_slices.py -k test_freed_memory_returns_to_the_system_despite_fragmentation",
    ),
    (
        "an answer larger than the cache empties it",
        "server/cache.py",
        ("            if size > self._limit:\n                return\n"),
        "",
        "tests/server/test_rare_faults.py -k larger_than",
    ),
    (
        "processes that share a folder have clocks of their own",
        "server/process/clock.py",
        'return float(path.read_text("utf-8"))',
        "return offset",
        "tests/server/test_clock.py -k processes_that_share_a_folder_agree_whenever_they_start",
    ),
    (
        "a client chooses a later deadline than the server's",
        "server/state.py",
        "limit = min(limit, seconds)",
        "limit = seconds",
        "tests/server/test_server_process.py -k a_deadline_is_a_504_and_frees_the_slots",
    ),
    (
        "a body in crumbs is told by its chunks alone",
        "server/process/watchdog.py",
        "CHUNK_BYTES * event.chunk_start - len(event.data))",
        "CHUNK_BYTES * event.chunk_start)",
        "tests/server/http/test_connection_limits.py -k test_body_in_chunks_is_accepted_but_tiny_chunks_are_refused",
    ),
    (
        "a large chunk pays for crumbs that come later",
        "server/process/watchdog.py",
        "self._lacking = max(0, self._lacking + CHUNK_BYTES * event.chunk_start - len(event.data))",
        "self._lacking += CHUNK_BYTES * event.chunk_start - len(event.data)",
        "tests/server/http/test_connection_limits.py -k test_body_in_chunks_is_accepted_but_tiny_chunks_are_refused",
    ),
    (
        "what a server is made of is collected again and again",
        "server/app.py",
        (
            "        if self.own_process:  # garbage collection need not scan routes and schemas\n"
            "            spare_collector()\n"
        ),
        "",
        "tests/server/test_server_process.py -k garbage_collection_skips_the_objects_of_the_server",
    ),
]
