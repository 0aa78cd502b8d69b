"""Faults of server/callers, as (name, file, old, new, pytest arguments); see `tests.mutants`."""

FAULTS = [
    (
        "wrong keys may be tried for ever",
        "server/callers/access.py",
        "            await access.note_failure(address)\n",
        "",
        "tests/server/test_limits.py -k slowed_down",
    ),
    (
        "an order to models is open",
        "server/callers/access.py",
        "if pattern.fullmatch(path)), None)",
        "if pattern.fullmatch(path + '/')), None)",
        "tests/server/test_limits.py -k reading_only",
    ),
    (
        "each worker counts for itself",
        "server/callers/quotas.py",
        '        return int(await self._ask("incr", key, expiry, amount))\n',
        "        return await super().incr(key, expiry, amount)\n",
        "tests/server/test_limits.py -k counters",
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
]
