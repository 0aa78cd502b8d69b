"""More faults for `tests/mutants.py`: of the formats of documents, agents' messages and gRPC's.

Each is (name, file, what is there, what the fault puts there, pytest arguments of which a test must fail).
"""

FORMATS = "tests/documents/test_formats.py"
FIELDS = "tests/documents/test_fields.py"
MUTANTS = [
    (
        "what is counted in a document is prose",
        "documents/formats/docx.py",
        "words[0].upper() in PROSE_FIELDS and",
        "words[0] and",
        FIELDS,
    ),
    (
        "a link of a document has no end",
        "documents/formats/docx.py",
        "                if isinstance(output.element, _Field):\n",
        "                if False:\n",
        FIELDS,
    ),
    (
        "what a control has chosen is prose",
        "documents/formats/docx.py",
        "return None if kept else element.find(CONTROL_CONTENT)",
        "return element.find(CONTROL_CONTENT)",
        FIELDS,
    ),
    (
        "keys of JSON are translated",
        "documents/formats/messages.py",
        "if match[1] is None",
        "if True",
        f"{FORMATS} -k keep_their_keys",
    ),
    (
        "a placeholder of a program is a word like others",
        "documents/tagged.py",
        "            builder.keep(piece)\n",
        "            builder.text(piece)\n",
        f"{FORMATS} -k kept_spans",
    ),
    (
        "a unit of XLIFF that may not be translated is",
        "documents/formats/xliff.py",
        '"yes") != "no"',
        '"yes") != "never"',
        f"{FORMATS} -k xliff_1_gets",
    ),
    (
        "a message of gettext that has a translation gets another",
        "documents/formats/po.py",
        "not (entry.msgstr or any(",
        "not (any(",
        f"{FORMATS} -k nothing_else",
    ),
    (
        "a catalogue may name a file of the server's",
        "documents/formats/po.py",
        'polib.pofile("\\n" + file.text',
        "polib.pofile(file.text",
        f"{FORMATS} -k name_of_a_file",
    ),
    (
        "a book that is encrypted is read as if it were not",
        "documents/formats/epub.py",
        'ENCRYPTION, "CipherReference", "URI")) & set(rules)',
        'ENCRYPTION, "CipherReference", "URI")) & set()',
        f"{FORMATS} -k protected_against",
    ),
    (
        "a text of YAML that means a number stands without quotes",
        "documents/formats/yaml.py",
        "        and loader.resolve(yaml.ScalarNode, text, (True, False)) == STRING\n",
        "",
        f"{FORMATS} -k mean_something_else",
    ),
    (
        "parts of a message over gRPC are not counted",
        "server/grpc/codec.py",
        "if count > MAX_FIELDS:",
        "if False:",
        "tests/server/contracts/test_grpc.py -k many_parts",
    ),
]
