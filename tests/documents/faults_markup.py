"""Faults of Markdown, of the languages and sources in files, and of memories; the tests must find each."""

FAULTS = [
    (
        "a link whose text is the name of its address loses the name",
        "documents/formats/markdown_lines.py",
        'self.marks[number].append(f"][{label}]")',
        'self.marks[number].append("]")',
        "tests/documents/test_dialects.py -k names_its_address",
    ),
    (
        "escaped characters lose their spelling",
        "documents/formats/markdown_lines.py",
        "next(left[character]) if character in left else character",
        "character",
        "tests/documents/test_dialects.py -k spelling",
    ),
    (
        "white space between two elements is lost",
        "documents/spans.py",
        "parent, apart=self._apart)",
        "parent, apart=False)",
        "tests/documents/test_dialects.py -k spelling",
    ),
    (
        "an entry of a table of contents is one text with its number",
        "documents/inline.py",
        'if atom.kind == "split":',
        'if atom.kind == "split" and not state.around:',
        "tests/documents/test_office.py -k contents",
    ),
    (
        "a translated unit of a memory is translated again",
        "documents/formats/strings/memories.py",
        "if len(filled) != 1 or",
        "if not filled or",
        "tests/documents/test_more_formats.py -k memory",
    ),
    (
        "columns of a table are not chosen",
        "documents/__init__.py",
        '**({"columns": columns} if kind.module == TABLES else {}),',
        '**({"columns": ()} if kind.module == TABLES else {}),',
        "tests/server/contracts/test_files.py -k columns",
    ),
    (
        "a Word document loses its source next to the translation",
        "documents/formats/office/docx.py",
        "if segment.original is None:",
        "if segment.original is segment.original:",
        "tests/documents/test_bilingual.py -k Word",
    ),
    (
        "a page keeps the language of its source",
        "documents/bilingual.py",
        "elif document.write_in and languages[1]:",
        "elif document.write_in and not languages[1]:",
        "tests/documents/test_bilingual.py -k names_the_language",
    ),
]
