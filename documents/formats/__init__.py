"""What is prose in a file and how it is written again: a module for each kind.

plain       lines of text; pages of HTML in any encoding
html        HTML and XML as prose with markup between; attributes: prose in them
markdown    CommonMark with tables, notes and formulas
subtitles   SubRip and WebVTT
docx, pptx, odt     office documents
epub        books: pages of HTML in an archive
pdf         read only, as paragraphs
messages    the strings of programs: placeholders, plurals; of JSON
yaml, po, xliff     the same of YAML, gettext and XLIFF
"""
