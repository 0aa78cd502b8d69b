"""Files that a server stores, and its routes for files."""

from __future__ import annotations

import io
import re

import docx
import pytest

from documents import FORMATS, UNKNOWN_FORMAT, Unreadable, read_document
from engine.api import Overloaded, TooLarge
from server.files.store import Store, safe, translated_name
from tests.documents.samples import XLIFF_1, odt, printed, texts, word
from tests.documents.test_more_formats import MEMORY, PLURALS, QT_PLURALS, notebook, workbook
from tests.support.served import server, until


@pytest.mark.parametrize("kind", sorted(FORMATS))
def test_empty_file_is_no_server_error(kind):
    try:
        assert read_document(f"a{kind}", b"").segments == []
    except Unreadable:
        assert kind not in (".txt", ".md", ".html", ".htm", ".srt", ".yaml", ".po")


def test_file_names_are_safe():
    assert safe("../../etc/passwd") == "passwd"
    assert safe("C:\\x\\bericht 1.docx") == "bericht_1.docx"
    assert safe("..") == "file"
    assert safe("\0\n") == "file"
    assert safe(f"{'a' * 300}.docx") == f"{'a' * 95}.docx"
    assert len(safe(f"a.{'b' * 300}")) <= 100
    assert len(safe("a" * 500 + ".docx")) == 100
    assert translated_name("x/Größe.docx", "en") == "Größe_en.docx"


def test_files_expire_and_their_total_is_limited(tmp_path):
    now = [0.0]
    store = Store(10.0, 10_000, lambda: now[0])
    one = store.put("a.txt", b"1" * 6_000)
    assert store.get(one).path.read_bytes() == b"1" * 6_000
    with pytest.raises(Overloaded):
        store.put("b.txt", b"2" * 60)  # counts as a block of the disk
    with pytest.raises(TooLarge):
        store.put("b.txt", b"2" * 10_001)
    path = store.get(one).path
    now[0] = 10.0
    assert store.get(one) is None
    assert not path.exists()
    store.put("b.txt", b"2" * 60)
    folder = path.parent
    store.close()
    assert not folder.exists()


@pytest.fixture(scope="module")
def place():
    with server(file_limit=100_000) as found:
        yield found


def send(client, name="brief.txt", data=b"Das ist gut.\n", **fields):
    values = {"source": "de", "target": "en"} | fields
    return client.post("/translate_file", files={"file": (name, data)}, data=values)


def test_file_is_translated_and_downloaded(place):
    client = place[0]
    answer = send(client, source="auto")
    url = answer.json()["translatedFileUrl"]
    assert re.fullmatch(rf"{client.base_url}/download_file/[0-9a-f-]{{36}}\.brief_en\.txt", url)
    file = client.get(url)
    line = client.post("/translate", json={"q": "Das ist gut.", "source": "de", "target": "en"}).json()
    assert file.text == line["translatedText"] + "\n"
    assert file.headers["content-disposition"] == 'attachment; filename="brief_en.txt"'
    assert client.head(url).status_code == 200


def test_pdf_is_translated_into_a_text(place):
    url = send(place[0], "a.pdf", printed("Das ist gut.")).json()["translatedFileUrl"]
    assert url.endswith(".a_en.txt")
    file = place[0].get(url)
    line = place[0].post("/translate", json={"q": "Das ist gut.", "source": "de", "target": "en"}).json()
    assert (file.headers["content-type"], file.text) == (
        "text/plain; charset=utf-8",
        line["translatedText"] + "\n\n",
    )


def test_word_document_is_translated_over_http(place):
    url = send(place[0], "a.docx", word()).json()["translatedFileUrl"]
    file = docx.Document(io.BytesIO(place[0].get(url).content))
    assert len(file.paragraphs) == 5
    assert len(file.inline_shapes) == 1
    assert file.paragraphs[0].text != "Das ist ein roter Satz."


OPEN_TEXT = "<text:p>Das ist gut.</text:p>"
ANDROID = "<resources><string name='a'>Das ist gut.</string></resources>"
NEW_FORMATS = {
    "a.xlsx": workbook(),
    "a.csv": b"id;text\n1;Das ist gut.\n",
    "a.tsv": b"id\ttext\n1\tDas ist gut.\n",
    "a.ipynb": notebook(1).encode(),
    "a.ftl": b"a = Das ist gut.\n",
    "a.stringsdict": PLURALS.encode(),
    "a.ass": b"[Events]\nFormat: Layer, Text\nDialogue: 0,Das ist gut.\n",
    "a.sbv": b"0:00:01.000,0:00:02.000\nDas ist gut.\n",
    "a.sdlxliff": XLIFF_1.encode(),
    "a.mqxliff": XLIFF_1.encode(),
    "a.odp": odt(OPEN_TEXT),
    "a.ods": odt(OPEN_TEXT),
    "strings.xml": ANDROID.encode(),
    "a.strings": b'"a" = "Das ist gut.";\n',
    "a.properties": b"a = Das ist gut.\n",
    "a.arb": b'{"a": "Das ist gut.", "@a": {}}',
    "a.resx": b"<root><data name='a'><value>Das ist gut.</value></data></root>",
    "a.ts": QT_PLURALS.encode(),
    "a.tmx": MEMORY.encode(),
}


@pytest.mark.parametrize("name", sorted(NEW_FORMATS))
def test_each_format_is_translated_for_both_contracts(place, name):
    client, data = place[0], NEW_FORMATS[name]
    first = client.get(send(client, name=name, data=data).json()["translatedFileUrl"]).content
    form = {"target_lang": "EN", "source_lang": "DE"}
    handle = client.post("/v2/document", files={"file": (name, data)}, data=form).json()
    path, key = f"/v2/document/{handle['document_id']}", {"document_key": handle["document_key"]}
    until(lambda: client.post(path, json=key).json()["status"] in ("done", "error"))
    second = client.post(f"{path}/result", json=key).content
    for written in (first, second):
        assert texts(name, written) != texts(name, data)
        assert len(texts(name, written)) in (len(texts(name, data)), 0)  # 0: of units without a translation


@pytest.mark.parametrize(
    ("fields", "status", "text"),
    [
        ({"source": ""}, 400, "Invalid request: missing source parameter"),
        ({"target": ""}, 400, "Invalid request: missing target parameter"),
        ({"name": "a.exe"}, 400, f"Invalid request: {UNKNOWN_FORMAT}"),
        ({"source": "zz"}, 400, "zz is not supported"),
        ({"target": "auto"}, 400, "auto is not supported"),
        (
            {"name": "a.docx"},
            400,
            "Invalid request: the file can't be read as a Word document; is it complete?",
        ),
        (
            {"data": b"a" * 100_001},
            413,
            "the file has 100001 bytes, more than the limit of 100000 (CONVOY_FILE_LIMIT): split it",
        ),
    ],
)
def test_wrong_uploads_get_errors_of_libretranslate(place, fields, status, text):
    answer = send(place[0], **fields)
    assert (answer.status_code, answer.json()) == (status, {"error": text})


def test_upload_needs_a_file(place):
    for body in ({"data": {"source": "de"}}, {"json": {"file": "x"}}, {}):
        answer = place[0].post("/translate_file", **body)
        assert answer.json() == {"error": "Invalid request: missing file parameter"}
    assert place[0].post("/translate_file", content=b"a" * 300_000).status_code == 413


@pytest.mark.parametrize(
    "name", ["x", "../../etc/passwd", "..%2f..%2fetc%2fpasswd", "%2e%2e/x", "a%00b", "....//x", "é"]
)
def test_only_translated_files_can_be_downloaded(place, name):
    answer = place[0].get(f"/download_file/{name}")
    assert answer.status_code == 404
    assert "error" in answer.json()


def test_files_can_be_switched_off_and_are_removed_at_the_end():
    with server(files=False) as (client, house, _):
        off = {"error": "Files translation are disabled on this server."}
        answer = send(client)
        assert (answer.status_code, answer.json()) == (403, off)
        assert client.get("/frontend/settings").json()["supportedFilesFormat"] == []
        deepl = client.post("/v2/document", files={"file": ("a.txt", b"x")}, data={"target_lang": "EN"})
        assert (deepl.status_code, deepl.json()) == (403, {"message": off["error"]})
    with server() as (client, _, instance):
        send(client)
        folder = instance.config.app.state.files.store.folder
        assert list(folder.iterdir())
    assert not folder.exists()


def test_files_of_deepl_are_translated_while_the_client_waits(place):
    client = place[0]
    form = {"target_lang": "EN-GB", "source_lang": "DE"}
    handle = client.post("/v2/document", files={"file": ("brief.txt", b"Das ist gut.")}, data=form).json()
    path, key = f"/v2/document/{handle['document_id']}", {"document_key": handle["document_key"]}
    until(lambda: client.post(path, json=key).json()["status"] == "done")
    assert client.post(path, data=key).json()["billed_characters"] == 12
    file = client.post(f"{path}/result", json=key)
    assert file.headers["content-disposition"] == 'attachment; filename="brief_en.txt"'
    plain = client.post("/v2/translate", json={"text": "Das ist gut.", "target_lang": "EN"}).json()
    assert file.text == plain["translations"][0]["text"]
    for wrong in ({"document_key": "x"}, {"document_key": 1}, {"document_key": "é"}, {}):
        for where in (path, f"{path}/result"):
            answer = client.post(where, json=wrong)
            assert (answer.status_code, answer.json()) == (404, {"message": "Document not found."})
    missing = client.post("/v2/document", data=form)
    assert missing.json() == {"message": "Parameter 'file' not specified."}


def test_failed_document_has_an_error_and_503_means_not_ready():
    with server(service_settings={"queue_tokens": 20}) as (client, _, _):
        handle = client.post(
            "/v2/document",
            files={"file": ("a.txt", b"Haus und Hof und noch viel mehr davon. " * 3)},
            data={"target_lang": "EN", "source_lang": "DE"},
        ).json()
        path, key = f"/v2/document/{handle['document_id']}", {"document_key": handle["document_key"]}
        until(lambda: client.post(path, json=key).json()["status"] == "error")
        assert "tokens" in client.post(path, json=key).json()["error_message"]
        assert client.post(f"{path}/result", json=key).status_code == 413  # of the document's own error
