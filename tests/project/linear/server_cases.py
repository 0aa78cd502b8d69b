"""The patterns and parsers of server/: a case each, or why no text of a client reaches it."""

from __future__ import annotations

from tests.project.linear.calls import (
    body,
    entries,
    form_fields,
    form_parts,
    grpc_messages,
    instruction,
    media_parameters,
    one_line,
    present_phrases,
    server_names,
    tensors,
)
from tests.project.linear.case import TRUSTED, Case

SERVER_CASES: dict[str, Case | str] = {
    "server.callers.access:__init__": "patterns of the operator",
    "server.observing.context:ID": Case(),
    "server.callers.keys:read_keys": TRUSTED,
    "server.settings.callers:_check_pattern": "a pattern of the operator",
    "server.files.shared_records:RECORD_ID": Case(),
    "server.files.store:UNSAFE": Case(),
    "server.app:who_may_send": "our own paths",
    "server.languages:TAG": Case(pumps=("-a", "-aaaa", "de-"), uses=("fullmatch",)),
    "server.languages:NAME_PARTS": Case(uses=("sub",)),
    "server.http.cors:REQUESTED_NAMES": Case(pumps=("a,", "a, "), uses=("fullmatch",)),
    "server.http.completing:PLAIN_CODE": "codes of languages that are served",
    "server.http.forms:read_fields": Case(form_fields, pumps=("%", "%6", "%61", "a&", "a=b&")),
    "server.http.forms:read_parts": Case(
        form_parts,
        pumps=(
            "\r\n--x",
            "\r\n--",
            "\r\n--x\r\n",
            "--x\r\nContent-Disposition: form-data; name=q\r\n\r\n",
            "--x  ",
        ),
    ),
    "server.http.forms:_read_head": "is timed with `read_parts`",
    "server.http.forms:_decode": "decodes UTF-8 or Latin-1",
    "server.http.forms:DELIMITER_END": Case(uses=("match",)),
    "server.http.media:parse_parameters": Case(media_parameters, pumps=(';"', '; a="\\"')),
    "server.http.protocol:BLANK_LINE": Case(uses=("search",)),
    "server.http.protocol:CONTROL": Case(uses=("search",)),
    "server.contracts.deepl.translate:AFTER_BREAK": Case(uses=("sub",)),
    "server.http.schemas:_split_lines": "splits a body of limited size at line ends",
    "server.http.schemas:_parse_object": "calls the JSON reader",
    "server.settings.kinds:split_names": "a list of the operator",
    "server.http.parameters:_read_body": "reads a body up to its limit",
    "server.answering.translation:read_pages": "calls a reader of tags",
    "server.answering.pages:parse_pages": "calls a reader of tags",
    "server.answering.pages:read_by_rules": "calls a reader of tags",
    "server.http.parameters:parse_json": Case(
        body, pumps=("[", "{", '"a",', '{"a":', "\\u0041", "1,", "[],")
    ),
    "server.contracts.deepl.entries:read_entries": Case(entries, pumps=("a\tb\n", "a,b\n", '"', '""')),
    "server.contracts.deepl.entries:present_entries": Case(present_phrases, pumps=("a b ", "ab")),
    "server.contracts.deepl.entries:_present_entries": "is timed with `present_entries`",
    "server.contracts.deepl.multilingual_routes:FORM_FIELD": Case(
        pumps=("dictionaries[1].a",), uses=("fullmatch",)
    ),
    "server.contracts.deepl.translate:on_one_line": Case(one_line, pumps=("\n a",)),
    "server.contracts.libretranslate.languages:detect": "a route",
    "server.contracts.openai.tasks:INSTRUCTION": Case(pumps=("translate ", "summar"), uses=("search",)),
    "server.contracts.openai.tasks:LANGUAGE": Case(pumps=("to ", "from a-", "to en (en) ")),
    "server.contracts.openai.tasks:read_instruction": Case(
        instruction, pumps=("translate to ", "translate from en to ")
    ),
    "server.contracts.reading.shapes:_read_deeplx": "takes values from an object",
    "server.contracts.reading.shapes:_read_immersive": "takes values from an object",
    "server.contracts.reading.shapes:_read_kiss": "takes values from an object",
    "server.contracts.reading.shapes:_read_mtran": "takes values from an object",
    "server.contracts.reading.shapes:_read_hcfy": "takes values from an object",
    "server.contracts.reading.shapes:_read_google": "takes values from an object",
    "server.contracts.reading.shapes:_read_free_google": "takes values from an object",
    "server.contracts.reading.shapes:_read_apertium": "takes values from an object",
    "server.contracts.reading.routes:_detect": "calls language detection",
    "server.contracts.mcp.routes:FIELD_END": Case(server_names, pumps=('" ', '"a":', '"  :')),
    "server.contracts.mcp.tools:detect_language": "calls language detection",
    "server.contracts.openai.tasks:read_fields": "takes values from an object",
    "server.contracts.openai.chat:read_messages": "loops over lists that the JSON reader has bounded",
    "server.contracts.kserve.tensors:read_tensors": Case(tensors),
    "server.grpc.codec:parse_message": "is timed with `read_request`",
    "server.grpc.codec:read_parameters": "is timed with `read_request`",
    "server.grpc.codec:read_request": Case(grpc_messages),
}
