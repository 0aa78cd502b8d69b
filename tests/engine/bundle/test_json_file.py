"""Invalid JSON files are refused with one line that names the file and the remedy."""

import pytest

from engine.bundle.json_file import MAX_JSON_BYTES, read_json
from engine.errors import BundleError, CheckpointError


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "not readable as JSON"),
        (b"\xff", "not readable as JSON"),
        (b"[" * 100_000, "not readable as JSON"),
        (b"[]", "must be a JSON object, not list"),
        (b"null", "must be a JSON object, not NoneType"),
    ],
)
def test_value_that_is_no_object_is_refused(tmp_path, content, message):
    path = tmp_path / "a.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError) as refusal:
        read_json(path, dict, "copy it again", CheckpointError)
    text = str(refusal.value)
    assert text.startswith(f"{path}: {message}") and text.endswith("; copy it again") and "\n" not in text


def test_a_file_is_read_no_further_than_any_vocabulary_is_long(tmp_path):
    path = tmp_path / "a.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # a sparse file
    with pytest.raises(BundleError, match=f"more than {MAX_JSON_BYTES:,} bytes"):
        read_json(path, list, "copy it again")


def test_a_file_that_is_missing_or_a_folder_is_named(tmp_path):
    with pytest.raises(BundleError, match="a.json: the file is missing; copy it again"):
        read_json(tmp_path / "a.json", dict, "copy it again")
    with pytest.raises(BundleError, match="not readable as JSON.*; copy it again"):
        read_json(tmp_path, dict, "copy it again")


def test_values_come_as_they_are(tmp_path):
    path = tmp_path / "a.json"
    path.write_bytes('{"ä": [1, null]}'.encode())
    assert read_json(path, dict, "") == {"ä": [1, None]}
    path.write_bytes(b'["a"]')
    assert read_json(path, list, "") == ["a"]
