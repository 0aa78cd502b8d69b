"""Forms of browsers: read like Starlette reads them, in any charset that is supported, within limits."""

import asyncio
import time

import httpx
import pytest
from starlette.datastructures import UploadFile
from starlette.requests import Request

from engine.api import InvalidRequest, at_once
from server.http.forms import MAX_FIELDS, form_of, read_fields, read_parts
from server.http.media import MAX_PARAMETERS, MAX_VALUE_BYTES, media_of
from tests.support.timing import assert_takes_at_most, slowness, thrice

HEAD = b'--x\r\nContent-Disposition: form-data; name="q"\r\n\r\n'
PART = HEAD + b"\r\n"
FILE = b'--x\r\nContent-Disposition: form-data; name="file"; filename="a.txt"\r\n\r\n'
MULTIPART = "multipart/form-data; boundary=x"


def ours(raw, kind):
    return at_once(read_parts(raw, media_of(kind)))


def starlettes(raw, kind):
    """Return fields and files of a form as Starlette reads them."""

    async def receive():
        return {"type": "http.request", "body": raw, "more_body": False}

    async def read():
        scope = {"type": "http", "headers": [(b"content-type", kind.encode())]}
        form = await Request(scope, receive).form()
        fields, files = {}, {}
        for name, value in form.multi_items():
            if isinstance(value, UploadFile):
                files[name] = (value.filename, await value.read())
            else:
                fields.setdefault(name, []).append(value)
        await form.close()
        return fields, files

    return asyncio.run(read())


DATA = {"q": ["Grüße", "a;b", ""], 'a"b': "x\r\ny", "日本": "語"}
CONTENT = b"\r\n--xy\r\n\0\xff\r\n\r\n--"


@pytest.mark.parametrize("name", ["a.txt", "ä ö.txt", 'a"b;c.txt', "C:\\x\\a.txt", ""])
def test_forms_are_read_like_starlette_reads_them(name):
    files = {"file": (name, CONTENT, "text/plain")}
    sent = httpx.Request("POST", "http://a/", data=DATA, files=files)
    raw, kind = sent.read(), sent.headers["content-type"]
    fields, uploads = starlettes(raw, kind)
    found = ours(raw, kind)
    assert found.fields == fields
    assert {key: (file.name, file.content) for key, file in found.files.items()} == uploads
    assert not name or found.files["file"].content == CONTENT


@pytest.mark.parametrize(
    ("raw", "fields"),
    [
        (b"preamble\r\n" + HEAD + b"1\r\n--x--\r\nepilogue", {"q": ["1"]}),
        (HEAD + b"\r\n--x-\r\n--x  \r\n" + HEAD[5:] + b"2\r\n--x--", {"q": ["\r\n--x-", "2"]}),
        (b"--x--", {}),
        (HEAD.lower().replace(b'"q"', b"q") + b"1\r\n--x--", {"q": ["1"]}),
    ],
)
def test_boundaries_are_whole_lines(raw, fields):
    assert ours(raw, MULTIPART).fields == fields


@pytest.mark.parametrize("charset", ["utf-8", "UTF-8", '"utf-8"', "us-ascii", "iso-8859-1", "latin1"])
def test_supported_charsets_are_read(charset):
    codec = "latin-1" if charset in ("iso-8859-1", "latin1") else "utf-8"
    raw = HEAD + "Grüße".encode(codec) + b"\r\n--x--"
    assert ours(raw, f"{MULTIPART}; charset={charset}").fields == {"q": ["Grüße"]}
    typed = raw.replace(
        b"\r\n\r\n", b"\r\nContent-Type: text/plain; charset=%b\r\n\r\n" % charset.encode(), 1
    )
    assert ours(typed, MULTIPART).fields == {"q": ["Grüße"]}
    form = "q=Gr%C3%BC%C3%9Fe" if codec == "utf-8" else "q=Gr%FC%DFe"
    media = media_of(f"application/x-www-form-urlencoded; charset={charset}")
    assert asyncio.run(form_of(media, form.encode())).fields == {"q": ["Grüße"]}


@pytest.mark.parametrize(
    "charset", ["punycode", "idna", "undefined", "utf-7", "unicode_escape", "utf-16", "rot13", "zip", "x\n"]
)
@pytest.mark.parametrize(
    "kind", ["application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"]
)
def test_other_charsets_are_refused_before_decoding(client, kind, charset):
    body = {"application/json": b'{"q":"a-"}', MULTIPART: HEAD + b"a-\r\n--x--"}.get(kind, b"q=a-")
    head = {"content-type": f"{kind}; charset={charset.strip()}"}
    answer = client.post("/translate", content=body, headers=head)
    assert answer.status_code == 400
    assert "send the body in UTF-8" in answer.json()["error"]


def test_charset_of_a_part_is_refused_too(client):
    part = HEAD.replace(b"\r\n\r\n", b"\r\nContent-Type: text/plain; charset=punycode\r\n\r\n")
    answer = client.post("/translate", content=part + b"a-\r\n--x--", headers={"content-type": MULTIPART})
    assert answer.status_code == 400
    assert "'punycode' is not supported" in answer.json()["error"]


LONG = 10_000_000
COSTLY = {
    "parameters of the form": (HEAD + b"\r\n--x--", MULTIPART + ";" * 78_000),
    "parameters of a part": (HEAD.replace(b"\r\n\r\n", b";" * 1_000_000 + b"\r\n\r\n"), MULTIPART),
    "headers of a part": (HEAD.replace(b"\r\n\r\n", b"\r\na:b" * 250_000 + b"\r\n\r\n"), MULTIPART),
    "near boundaries": (FILE + b"\r\n--" * (LONG // 4) + b"\r\n--x--", MULTIPART),
    "boundaries in a line": (FILE + b"\r\n--xy" * (LONG // 6) + b"\r\n--x--", MULTIPART),
    "spaces after boundaries": (FILE + b"\r\n--x" + b" " * LONG + b"\r\n--x--", MULTIPART),
    "parts": (PART * (LONG // len(PART)), MULTIPART),
    "a charset of quadratic time": (HEAD + b"-a" * 500_000 + b"\r\n--x--", MULTIPART + "; charset=punycode"),
}


@pytest.mark.parametrize("name", COSTLY)
def test_costly_form_takes_linear_time_in_short_slices(name):
    raw, kind = COSTLY[name]

    def attempt():
        seconds, began = [0.0], time.thread_time()
        try:
            for _ in read_parts(raw, media_of(kind)):
                seconds.append(time.thread_time() - began - sum(seconds))
        except InvalidRequest:
            seconds.append(time.thread_time() - began - sum(seconds))
        slow = slowness()
        late = max(seconds) > 0.1 * slow or sum(seconds) > 0.5 * slow
        return f"{max(seconds):.3f} s in a slice, {sum(seconds):.3f} s in all" if late else ""

    thrice(attempt)


def test_limits_of_parts_and_parameters():
    assert len(ours(PART * MAX_FIELDS + b"--x--", MULTIPART).fields["q"]) == MAX_FIELDS
    for raw, kind in (
        (PART * (MAX_FIELDS + 2) + b"--x--", MULTIPART),
        (b"--x--", MULTIPART + ";a=b" * MAX_PARAMETERS),
        (b"--x--", MULTIPART + ";a=" + "b" * MAX_VALUE_BYTES),
        (b"--" + b"x" * 300 + b"--", "multipart/form-data; boundary=" + "x" * 300),
        (FILE + b"\r\n" + FILE + b"\r\n--x--", MULTIPART),
        (HEAD, MULTIPART),
        (b"--x\r\n\r\n1\r\n--x--", MULTIPART),
        (b"--x--", "multipart/form-data"),
    ):
        with pytest.raises(InvalidRequest):
            ours(raw, kind)


def test_names_of_many_fields_are_compared_once():
    """A list that is searched for each name would take quadratic time."""
    raw = b"&".join(b"a%d=b" % number for number in range(MAX_FIELDS))
    assert len(at_once(read_fields(raw))) == MAX_FIELDS
    assert_takes_at_most(0.05, lambda: at_once(read_fields(raw)))
