"""More faults for `tests/mutants.py`: in what one client may cost, and those that no test had noticed.

Each is (name, file, what is there, what the fault puts there, pytest arguments of which a test must fail).
"""

RARE = "tests/server/test_rare_faults.py"
LIMITS = "tests/server/test_limits.py"
QUEUE = "tests/engine/schedule/test_queue.py"
GLOSSARIES = "tests/server/contracts/test_glossaries.py"
KSERVE = "tests/server/contracts/test_kserve.py"

MUTANTS = [
    (
        "a window grows with every hit",
        "server/callers/quotas.py",
        "self.expirations.setdefault(key, self._clock() + expiry)",
        "self.expirations[key] = self._clock() + expiry",
        f"{RARE} -k window",
    ),
    (
        "a revoked key goes on for long",
        "server/callers/keys.py",
        "STALE_SECONDS: Final = 1.0",
        "STALE_SECONDS: Final = 100.0",
        f"{RARE} -k revoked",
    ),
    (
        "names of hosts have case",
        "server/http/middleware.py",
        "if name.casefold() in names",
        "if name in names",
        f"{RARE} -k hosts",
    ),
    (
        "a file is given out under any name after its token",
        "server/files/store.py",
        "if file is None or file.name != name:",
        "if file is None:",
        f"{RARE} -k whole_name",
    ),
    (
        "an answer larger than the cache empties it",
        "server/cache.py",
        "            if size > self._limit:\n                return\n",
        "",
        f"{RARE} -k larger_than",
    ),
    (
        "the process for files has the server's environment",
        "server/files/document_processes.py",
        "env=environment,",
        "env={**os.environ, **environment},",
        f"{RARE} -k environment",
    ),
    (
        "a cancelled request uses up the encoder's budget",
        "engine/schedule/queue.py",
        "cost = 0 if request.cancelled else len(request.source)",
        "cost = len(request.source)",
        f"{RARE} -k cancelled",
    ),
    (
        "a timeout of the work is told as a deadline",
        "engine/schedule/slices.py",
        "if not limit.expired():",
        "if False:",
        f"{RARE} -k timeout_of_the_work",
    ),
    (
        "the client tries again after its own time-out",
        "convoy_client/exchange.py",
        'reason}"), not late',
        'reason}"), True',
        f"{RARE} -k own_time_out",
    ),
    (
        "names in the client's paths are not quoted",
        "convoy_client/calls.py",
        "{quote(name, safe='')}",
        "{name}",
        f"{RARE} -k quoted",
    ),
    (
        "a group may fill a lane",
        "engine/schedule/queue.py",
        "room.held[ticket] >= room.share(request, len(groups))",
        "False",
        f"{QUEUE} -k share",
    ),
    (
        "long sources have as many slots as short ones",
        "engine/schedule/queue.py",
        "self.slots // 2 * SHORT_TOKENS // max(SHORT_TOKENS, len(request.source))",
        "self.slots // 2",
        f"{QUEUE} -k share",
    ),
    (
        "what a group holds is not counted as it is taken",
        "engine/schedule/queue.py",
        "                room.held[ticket] += 1\n",
        "",
        f"{QUEUE} -k share",
    ),
    (
        "a tensor has any number of dimensions",
        "server/contracts/kserve/tensors.py",
        "not 0 < len(shape) <= MAX_DIMENSIONS",
        "not shape",
        f"{KSERVE} -k bad_requests",
    ),
    (
        "empty elements of a tensor are not counted",
        "server/contracts/kserve/tensors.py",
        "        _check_count(len(texts) + 1, batch_limit)\n",
        "",
        f"{KSERVE} -k counted_as",
    ),
    (
        "a header of any length is read as a number",
        "server/contracts/kserve/models.py",
        " and len(header) < 16)",
        ")",
        f"{KSERVE} -k wrong_length",
    ),
    (
        "one owner may have all the room for glossaries",
        "server/contracts/deepl/glossaries.py",
        "(own, MAX_STORE_BYTES // OWNER_SHARES)",
        "(own, MAX_STORE_BYTES)",
        f"{GLOSSARIES} -k share",
    ),
    (
        "a glossary's name has any length",
        "server/contracts/deepl/glossaries.py",
        "if len(name) > MAX_NAME_CHARACTERS:",
        "if False:",
        f"{GLOSSARIES} -k name_is_bounded",
    ),
    (
        "looking for entries takes memory by the text",
        "server/contracts/deepl/glossaries.py",
        "begin, min(begin + SLICE_CHARACTERS, len(text))",
        "0, len(text)",
        f"{GLOSSARIES} -k memory",
    ),
    (
        "several glossaries have any number of entries together",
        "server/contracts/deepl/glossaries.py",
        "        if len(entries) > MAX_ENTRIES:\n            raise InvalidRequest(\n",
        "        if False:\n            raise InvalidRequest(\n",
        f"{GLOSSARIES} -k all_of_a_request",
    ),
    (
        "lines of a form's phrases end where nobody counted",
        "server/http/schemas.py",
        'for part in value.split("\\n")',
        "for part in value.splitlines()",
        f"{LIMITS} -k phrases_of_a_form",
    ),
    (
        "an owner who has many files goes on first",
        "server/files/document_processes.py",
        "            if line:\n                self._waiting[owner] = line  # behind the others\n",
        "            if line:\n                self._waiting[owner] = line\n"
        "                self._waiting.move_to_end(owner, False)\n",
        f"{LIMITS} -k owners_take_turns",
    ),
    (
        "small files wait for large ones",
        "server/files/document_processes.py",
        "places = self._small_places if len(body) <= SMALL_BYTES else self._places",
        "places = self._places",
        f"{LIMITS} -k small_file",
    ),
    (
        "an empty file takes no room",
        "server/files/room.py",
        "return max(MIN_BYTES, self.size)",
        "return self.size",
        f"{LIMITS} -k empty_files",
    ),
    (
        "every file is looked at for each new one",
        "server/files/store.py",
        "            if news is None:\n",
        "            if True:\n",
        f"{LIMITS} -k costs_the_same",
    ),
    (
        "a folder that has gone is not made anew",
        "server/files/store.py",
        "        if not self.folder.is_dir():\n",
        "        if False:\n",
        f"{LIMITS} -k made_anew",
    ),
    (
        "a server without a folder for files is ready",
        "server/contracts/convoy/status.py",
        "if state.settings.files and not files_of(request).store.usable:",
        "if False:",
        f"{LIMITS} -k unready",
    ),
    (
        "a pipe in a bundle is read",
        "engine/bundle/bundle.py",
        "if not p.is_dir() and not p.is_file()",
        "if False",
        "tests/engine/bundle/test_bundle.py -k 'pipe and more'",
    ),
    (
        "a prefix has any length",
        "server/http/schemas.py",
        "max_length=MAX_PREFIX_CHARACTERS",
        "max_length=None",
        f"{LIMITS} -k default_limit",
    ),
]
