"""Faults of server/files, as (name, file, old, new, pytest arguments); see `tests.mutants`."""

FAULTS = [
    (
        "a process that hangs with a file is left alone",
        "server/files/document_processes.py",
        "            await asyncio.shield(_end(process))\n",
        "",
        "tests/server/test_limits.py -k does_not_answer",
    ),
    (
        "one owner may have all processes",
        "server/files/document_processes.py",
        "        if self._owners[owner] >= MAX_OWNER_FILES:\n",
        "        if self._owners[owner] > 10 * SHARE:\n",
        "tests/server/test_limits.py -k share_of_the_processes",
    ),
    (
        "a full disk leaves half a file",
        "server/files/store.py",
        ("        except OSError as error:\n            self._unlink(token)\n"),
        "        except OSError as error:\n",
        "tests/server/test_limits.py -k full_disk",
    ),
    (
        "one owner may take all room",
        "server/files/room.py",
        "            or self._bytes[file.owner] + file.room > share\n",
        "",
        "tests/server/test_limits.py -k share_of_the_room",
    ),
    (
        "a file is given out under any name after its token",
        "server/files/store.py",
        "if file is None or file.name != name:",
        "if file is None:",
        "tests/server/test_rare_faults.py -k whole_name",
    ),
    (
        "the process for files has the server's environment",
        "server/files/document_processes.py",
        "env=environment,",
        "env={**os.environ, **environment},",
        "tests/server/test_rare_faults.py -k environment",
    ),
    (
        "an owner who has many files goes on first",
        "server/files/document_processes.py",
        ("            if line:\n                self._waiting[owner] = line  # after all other owners\n"),
        (
            "            if line:\n"
            "                self._waiting[owner] = line\n"
            "                self._waiting.move_to_end(owner, False)\n"
        ),
        "tests/server/test_limits.py -k owners_take_turns",
    ),
    (
        "small files wait for large ones",
        "server/files/document_processes.py",
        "places = self._small_places if len(body) <= SMALL_BYTES else self._places",
        "places = self._places",
        "tests/server/test_limits.py -k small_file",
    ),
    (
        "an empty file takes no room",
        "server/files/room.py",
        "return max(MIN_BYTES, self.size)",
        "return self.size",
        "tests/server/test_limits.py -k empty_files",
    ),
    (
        "every file is looked at for each new one",
        "server/files/store.py",
        "            if news is None:\n",
        "            if True:\n",
        "tests/server/test_limits.py -k costs_the_same",
    ),
    (
        "a folder that has gone is not made anew",
        "server/files/store.py",
        "        if not self.folder.is_dir():\n",
        "        if False:\n",
        "tests/server/test_limits.py -k made_anew",
    ),
    (
        "a file does not wait while the queue is full",
        "server/files/documents.py",
        ("                if time.monotonic() + error.retry_after > deadline:\n                    raise\n"),
        "                raise\n",
        "tests/server/test_rare_faults.py -k waits_while",
    ),
    (
        "a record is read by a path",
        "server/files/shared_records.py",
        "            return None\n        try:\n            record:",
        "            pass\n        try:\n            record:",
        "tests/server/test_shared_records.py -k ids_of_clients_lead_nowhere",
    ),
    (
        "a journal grows without end",
        "server/files/journal.py",
        "            if self._read <= MAX_JOURNAL_BYTES:",
        "            if True:",
        "tests/server/test_shared_records.py -k journal",
    ),
    (
        "a journal that was begun anew is read on",
        "server/files/journal.py",
        "if head and head == self._head:",
        "if head and self._head:",
        "tests/server/test_shared_records.py -k journal",
    ),
    (
        "a record that another process has changed is as it was",
        "server/files/known_records.py",
        "                    self._cached.pop(id, None)\n                self.find(id)",
        "                    pass\n                self._cached.get(id) or self.find(id)",
        "tests/server/test_shared_records.py -k reads_only_those",
    ),
]
