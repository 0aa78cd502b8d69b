"""Faults of server/callers, as (name, file, old, new, pytest arguments), for `tests.mutants`."""

FAULTS = [
    (
        "wrong keys may be tried for ever",
        "server/callers/access.py",
        "            await access.note_failure(address)\n",
        "",
        "tests/server/callers/test_limits.py -k test_requests_without_a_valid_key_are_slowed_down",
    ),
    (
        "an order to models is open",
        "server/callers/access.py",
        "if pattern.fullmatch(path)), None)",
        "if pattern.fullmatch(path + '/')), None)",
        "tests/server/callers/test_limits.py -k test_open_paths_are_open_only_for_reading",
    ),
    (
        "each worker counts for itself",
        "server/callers/quotas.py",
        '        return int(await self._ask("incr", key, expiry, amount))\n',
        "        return await super().incr(key, expiry, amount)\n",
        "tests/server/callers/test_limits.py -k 'test_remote_counters_count_like_local_ones or test_unresponsive_counters_give_503'",
    ),
    (
        "a window grows with every hit",
        "server/callers/quotas.py",
        "self.expirations.setdefault(key, self._clock() + expiry)",
        "self.expirations[key] = self._clock() + expiry",
        "tests/server/test_rare_faults.py -k window",
    ),
    (
        "a revoked key goes on for long",
        "server/callers/keys.py",
        "STALE_SECONDS: Final = 1.0",
        "STALE_SECONDS: Final = 100.0",
        "tests/server/test_rare_faults.py -k revoked",
    ),
    (
        "an empty token is a token",
        "server/settings/callers.py",
        "return value if value is not None and value.get_secret_value() else None",
        "return value",
        "tests/server/callers/test_access.py -k empty_token",
    ),
    (
        "a short key is accepted",
        "server/settings/callers.py",
        "if any(len(key) < MIN_KEY_CHARACTERS for key in keys):",
        "if any(len(key) < 1 for key in keys):",
        "tests/server/test_setting_values.py -k sixteen",
    ),
]
