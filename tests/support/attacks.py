"""Attacks on a server: requests that are as expensive as a client can make them, by name."""

import io
import zipfile

from tritonclient.grpc import service_pb2

from tests.server.test_server_process import GERMAN
from tests.support.served import LINES

FORM = "application/x-www-form-urlencoded"
LASTING = {
    "as many sentences as may be",
    "marks of Markdown",
    "carriage returns",
    "as many lines as may be",
    "more lines than may be",
}


def archive(entry, content):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("mimetype", "application/vnd.oasis.opendocument.text")
        packed.writestr(entry, content)
    return file.getvalue()


def file(name, content, **fields):
    values = {"source": "de", "target": "en"} | fields
    return lambda client: client.build_request(
        "POST", "/translate_file", data=values, files={"file": (name, content)}
    )


def deepl(**values):
    body = {"text": ["x"], "source_lang": "DE", "target_lang": "EN-GB"} | values
    return lambda client: client.build_request("POST", "/v2/translate", json=body)


def translate(**values):
    return lambda client: client.build_request("POST", "/translate", json=GERMAN | values)


def raw(path, content, kind):
    return lambda client: client.build_request("POST", path, content=content, headers={"Content-Type": kind})


def mcp(arguments):
    head = b'{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"translate_text","arguments":'
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    content = head + arguments + b"}}"
    return lambda client: client.build_request("POST", "/mcp", content=content, headers=headers)


TENSOR = {"name": "text_input", "datatype": "BYTES", "shape": [1], "data": ["x"]}


def tensors(**values):
    body = {"inputs": [TENSOR | values]}
    return lambda client: client.build_request("POST", "/v2/models/toy-de-en/infer", json=body)


# other clients' requests, one for each way through the server; every second one is long
VICTIMS = {
    "page": {"json": GERMAN | {"q": "<p>Das ist <b>gut</b>.</p>" * 80, "format": "html"}},
    "auto": {"json": GERMAN | {"source": "auto"}},
    "text": {"json": GERMAN | {"q": "Das ist gut. " * 160}},
    "form": {"data": GERMAN | {"more": "a" * 20_480}},
}
ATTACKS = {
    "points of a long sentence": translate(
        q="<p>" + "Ja. " * 3_500 + "Gut <wbr>so. " * 480 + "</p>", format="html"
    ),
    "stars in prose with numbers": translate(q="*Das* " + "ist gut und 1 " * 5_500),
    "beginnings of emoji": translate(q="<::" * 33_000),
    "a form in punycode": raw(
        "/translate",
        b'--x\r\nContent-Disposition: form-data; name="q"\r\n'
        b"Content-Type: text/plain; charset=punycode\r\n\r\n" + b"-a" * 450_000 + b"\r\n--x--",
        "multipart/form-data; boundary=x; charset=punycode",
    ),
    "subtitles of digits": file("a.srt", b"1" * 1_700),
    "subtitles of white space": file("a.srt", b" \n" * 20_000 + b"x"),
    "a word without end": translate(q="a" * 50_000),
    "letters without end": translate(q="a" * 60_000),
    "a prefix without end": translate(q=LINES[:30], prefix="a" * 900_000),
    "a prefix as long as may be": translate(q=LINES[:30], prefix="a" * 16_384),
    "shapes of many dimensions": tensors(shape=[2**31 - 1] * 90_000),
    "tensors of empty elements": tensors(shape=[1], data=[[]] * 40_000),
    "outputs without end": lambda client: client.build_request(
        "POST",
        "/v2/models/toy-de-en/infer",
        json={"inputs": [TENSOR], "outputs": [{"name": "score"}] * 45_000},
    ),
    "half an address": translate(q="a.b-" * 24_000),
    "dots": deepl(text=["." * 99_000], preserve_formatting=True),
    "dots that end in a letter": deepl(text=["." * 99_000 + "x"], preserve_formatting=True),
    "white space without a line break": deepl(text=[" " * 99_000 + "x"], split_sentences="nonewlines"),
    "more dots than are taken": deepl(text=["." * 300_000]),
    "empty texts": translate(q=[""] * 250_000),
    "texts of one letter": translate(q=["a"] * 1_000),
    "a glossary without end": translate(glossary={f"a{i}": "b" for i in range(60_000)}),
    "a glossary as long as may be": translate(
        q="x " * 20_000, glossary={f"{'a' * 20}{i}": "b" for i in range(1_000)}
    ),
    "phrases to keep without end": translate(ignore=[f"a{i}" for i in range(60_000)]),
    "phrases to keep in many texts": translate(q=["x y"] * 500, ignore=[f"x{i}" for i in range(1_000)]),
    "spans": translate(q="<p>" + "<b>x</b>" * 1_500 + "</p>", format="html"),
    "tags without end": translate(q="<p>" * 90_000, format="html"),
    "tags in one another": translate(q="<b>" * 9_000 + "x", format="html"),
    "tags in plain text": deepl(text=["<b>" * 33_000]),
    "prose with numbers": translate(q="Das ist gut und 1 " * 5_500),
    "half a tag": translate(q="<a " * 9_000, format="html"),
    "XML to be outlined": deepl(text=["<a>x" * 9_000], tag_handling="xml"),
    "sentences without end": translate(q=["Ja. " * 24_000] * 10),
    "as many sentences as may be": translate(q=[" ".join(LINES[i : i + 400]) for i in range(0, 4_000, 400)]),
    "attention": translate(q="Das ist gut und schön. " * 200, alignment=True, scores=True),
    "languages": lambda client: client.build_request(
        "POST", "/translate", json={"q": ["ein Wort"] * 1_000, "source": "auto", "target": "en"}
    ),
    "a page of an odd encoding": file("a.html", b"<meta charset=punycode>" + b"-a" * 100_000),
    "columns without end": file("a.csv", b"a\nb c\n", columns="a," * 4_000_000),
    "a line without end": file("a.txt", b"ab cd " * 1_600_000),
    "as many lines as may be": file("a.txt", b"a\n" * 100_000),
    "more lines than may be": file("a.txt", b"a\n" * 1_000_000),
    "half a page": file("a.html", b"<" * 1_000_000),
    "marks of Markdown": file("a.md", b"*[`" * 100_000),
    "lists in lists": file("a.md", b"> " * 50_000 + b"x"),
    "carriage returns": file("a.md", b"a\r" * 50_000),
    "an archive that swells": file("a.odt", archive("content.xml", b"<a/>" * 8_000_000)),
    "an archive of spaces": file("a.odt", archive("content.xml", b"<a>" + b" " * 40_000_000 + b"</a>")),
    "lists in JSON": raw("/translate", b'{"q":[' + b"[]," * 330_000 + b"1]}", "application/json"),
    "numbers in JSON": raw("/translate", b'{"q":[' + b"1," * 500_000 + b"1]}", "application/json"),
    "names in JSON": raw(
        "/translate", b"{" + b",".join(b'"%d":1' % n for n in range(80_000)) + b"}", "application/json"
    ),
    "JSON in JSON": raw("/translate", b'{"q":' * 150_000, "application/json"),
    "fields of a form": raw("/translate", b"q=1&" * 250_000, FORM),
    "a form of escapes": raw("/translate", b"q=" + b"%61" * 330_000, FORM),
    "parts of a form": raw(
        "/translate",
        b"--x\r\nContent-Disposition: form-data; name=q\r\n\r\n\r\n" * 19_000,
        "multipart/form-data; boundary=x",
    ),
    "a form of an odd encoding": raw(
        "/translate",
        b"--x\r\nContent-Disposition: form-data; name=q\r\n\r\n" + b"-a" * 500_000 + b"\r\n--x--",
        "multipart/form-data; boundary=x; charset=punycode",
    ),
    "parameters of a form": raw("/translate", b"--x--", "multipart/form-data; boundary=x" + ";" * 60_000),
    "parameters of a part": raw(
        "/translate",
        b"--x\r\nContent-Disposition: form-data; name=q" + b";" * 1_000_000 + b"\r\n\r\n\r\n--x--",
        "multipart/form-data; boundary=x",
    ),
    "boundaries without end": raw(
        "/translate_file",
        b"--x\r\nContent-Disposition: form-data; name=file; filename=a.txt\r\n\r\n"
        + b"\r\n--" * 2_400_000
        + b"\r\n--x--",
        "multipart/form-data; boundary=x",
    ),
    "line ends to be joined": deepl(text=["\n" * 99_000] * 5, split_sentences="nonewlines"),
    "fields that no route knows": translate(**{f"beam_sizes_{n:02}": 1 for n in range(10)}),
    "a path without end": lambda client: client.build_request("PATCH", "/v2/" + "a" * 60_000),
    "a query of fields": lambda client: client.build_request("GET", "/translate?" + "a&" * 30_000),
    "texts without end for a tool": raw(
        "/imme", b'{"target_lang":"en","text_list":[' + b'"a",' * 180_000 + b'""]}', "application/json"
    ),
    "a page for Google": raw("/language/translate/v2", b"target=en&q=" + b"%3Cp%3E" * 140_000, FORM),
    "a body that two contracts claim": raw(
        "/translate", b'{"text":"' + b"a. " * 30_000 + b'","to":"en"}', "application/json"
    ),
    "messages without end": raw(
        "/v1/chat/completions",
        b'{"model":"convoy","messages":['
        + b'{"role":"system","content":"translate to "},' * 20_000
        + b"{}]}",
        "application/json",
    ),
    "a system message without end": raw(
        "/v1/chat/completions",
        b'{"model":"convoy","messages":[{"role":"system","content":"translate'
        + b" from en to" * 80_000
        + b'"},{"role":"user","content":"Ja."}]}',
        "application/json",
    ),
    "texts without end for an agent": mcp(b'{"text":[' + b'"a",' * 240_000 + b'""],"target":"en"}'),
    "a text without end for an agent": mcp(b'{"text":"' + b"a. " * 330_000 + b'","target":"en"}'),
    "numbers in the place of an agent's texts": mcp(b'{"text":[' + b"1," * 190_000 + b'1],"target":"en"}'),
    "an agent's texts within a text": mcp(b'{"text":"[' + b"1," * 190_000 + b'1]","target":"en"}'),
    "more numbers than are read for an agent": mcp(b'{"text":[' + b"1," * 500_000 + b'1],"target":"en"}'),
    "a thousand texts that are too long each": translate(q=["Ja. " * 200] * 1_000, partial=True, split=False),
    "five hundred texts that are too long among others": translate(
        q=["Ja. " * 200, "Ja."] * 500, partial=True, split=False
    ),
    "arguments in arguments": mcp(b'{"text":' * 120_000),
    "arguments that no tool has": mcp(b"{" + b",".join(b'"%d":1' % n for n in range(80_000)) + b"}"),
    "messages of agents without end": raw(
        "/mcp", b"[" + b'{"jsonrpc":"2.0","id":1,"method":"ping"},' * 20_000 + b"1]", "application/json"
    ),
    "a glossary to be kept": lambda client: client.build_request(
        "POST",
        "/v2/glossaries",
        json={
            "name": "x",
            "source_lang": "de",
            "target_lang": "en",
            "entries": '"' * 900_000,
            "entries_format": "csv",
        },
    ),
}


def called(fill):
    """Return a function that makes the messages of a call; `fill` fills the first one."""

    def make():
        message = service_pb2.ModelInferRequest(model_name="toy-de-en")
        fill(message)
        return [message.SerializeToString()]

    return make


def inputs(message):
    for _ in range(20_000):
        message.inputs.add(name="text_input", datatype="BYTES", shape=[1]).contents.bytes_contents.append(
            b"a"
        )


def shapes(message):
    message.inputs.add(name="text_input", datatype="BYTES", shape=[2**62] * 100_000)


def values(message):
    for number in range(40_000):
        message.parameters[f"a{number}"].int64_param = number


def outputs(message):
    message.inputs.add(name="text_input", datatype="BYTES", shape=[1]).contents.bytes_contents.append(b"a")
    for _ in range(40_000):
        message.outputs.add(name="score")


def empty(message):
    message.inputs.add(name="text_input", datatype="BYTES", shape=[250_000])
    message.raw_input_contents.append(bytes(1_000_000))


CALLS = {
    "inputs without end": called(inputs),
    "shapes without end": called(shapes),
    "parameters without end": called(values),
    "outputs without end": called(outputs),
    "empty texts without end": called(empty),
    "groups in groups": lambda: [b"\x0b" * 1_000_000],
    "more than a message may have": lambda: [b"\x0a" + b"\x80" * 4 + b"\x01" + bytes(5_000_000)],
    "a stream of messages that are none": lambda: [b"\xff\xff"] * 2_000,
    "a stream of calls that fail": lambda: called(shapes)() * 20,
}
