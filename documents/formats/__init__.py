"""Readers and writers for kinds of files, one module for each.

plain       lines of text; pages of HTML in any encoding
html        HTML and XML as prose with markup between it
attributes  prose in attributes of HTML
outline     tags of XML that end a sentence
markdown    CommonMark with tables, notes and formulas
subtitles   SubRip and WebVTT
docx, pptx, odt     office documents
epub        books: pages of HTML in an archive
pdf         read only, as paragraphs
messages    strings of programs in JSON, with placeholders and plurals
yaml, po, xliff     strings of programs in YAML, gettext and XLIFF
"""
