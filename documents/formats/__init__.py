"""Readers and writers for kinds of files, one module for each.

plain       lines of text; pages of HTML in any encoding
tags        HTML and XML as pieces: tags, comments and prose
html        HTML and XML as prose with markup between it
attributes  prose in attributes of HTML
outline     tags of XML that end a sentence
markdown    CommonMark with tables, notes, formulas and the markup of dialects
markdown_lines  inline content of Markdown
subtitles   SubRip and WebVTT
epub        books: pages of HTML in an archive
pdf         read only, as paragraphs
office/     documents of Word, PowerPoint and OpenDocument
strings/    strings of programs: JSON, YAML, gettext, XLIFF
"""
