"""Faults of server/files, as (name, file, old, new, pytest arguments), for `tests.mutants`."""

FAULTS = [
    (
        "a process that hangs with a file is left alone",
        "server/files/document_processes.py",
        "            await asyncio.shield(_end(process))\n",
        "",
        "tests/server/files/test_document_processes.py -k test_hanging_process_is_killed_at_the_deadline",
    ),
    (
        "one owner may have all processes",
        "server/files/document_processes.py",
        "        if self._owners[owner] >= MAX_OWNER_FILES:\n",
        "        if self._owners[owner] > 10 * SHARE:\n",
        "tests/server/files/test_document_processes.py -k test_one_owner_uses_only_a_share_of_the_processes",
    ),
    (
        "a full disk leaves half a file",
        "server/files/store.py",
        ("        except OSError as error:\n            self._unlink(token)\n"),
        "        except OSError as error:\n",
        "tests/server/files/test_storage.py -k test_full_disk_leaves_no_partial_file_and_gives_507",
    ),
    (
        "one owner may take all room",
        "server/files/room.py",
        "            or self._bytes[file.owner] + file.room > share\n",
        "",
        "tests/server/files/test_storage.py -k test_one_owner_fills_only_a_share_of_the_room",
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
        "tests/server/files/test_document_processes.py -k test_owners_take_turns_for_a_place",
    ),
    (
        "small files wait for large ones",
        "server/files/document_processes.py",
        "places = self._small_places if len(body) <= SMALL_BYTES else self._places",
        "places = self._places",
        "tests/server/files/test_document_processes.py -k test_small_file_does_not_wait_for_large_ones",
    ),
    (
        "an empty file takes no room",
        "server/files/room.py",
        "return max(MIN_BYTES, self.size)",
        "return self.size",
        "tests/server/files/test_storage.py -k test_empty_files_take_room_and_an_owner_has_a_limit_of_files",
    ),
    (
        "every file is looked at for each new one",
        "server/files/store.py",
        "            if changed_ids is None:\n",
        "            if True:\n",
        "tests/server/files/test_storage.py -k test_cost_of_a_file_does_not_grow_with_their_number",
    ),
    (
        "a folder that has gone is not made anew",
        "server/files/store.py",
        "        if not self.folder.is_dir():\n",
        "        if False:\n",
        "tests/server/files/test_storage.py -k 'test_removed_folder_is_made_again or test_server_is_unready_if_its_folder_cannot_be_made or test_folder_removed_before_its_lock_is_made_again'",
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
        "tests/server/test_shared_records.py -k ids_of_clients_are_no_paths",
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
        "tests/server/test_shared_records.py -k listing_glossaries_reads_only_changed_records",
    ),
    (
        "one owner may send files without end",
        "server/files/work.py",
        "if self._bytes[owner] and self._bytes[owner] + size > share:",
        "if False:",
        "tests/server/files/test_work.py -k thirty",
    ),
    (
        "a translated document keeps its place",
        "server/files/work.py",
        "            self._bytes[owner] -= size\n",
        "            pass\n",
        "tests/server/files/test_work.py -k after_its_translation",
    ),
]
