"""Placeables, the parts of a text that are not translated: numbers, addresses, code, names, markup.

amounts       patterns of the grammar: numbers, times, formulas, pictures
borders       patterns of the grammar: block tags, separators, heads of lines
code          patterns of the grammar: addresses, files, identifiers, commands
counterparts  titles, dates and abbreviations in another language
dense         lines of more code than prose
escapes       escaped characters of words
grammar       table of the kinds of placeables: pattern, example, treatment
markup        formats in plain text: emphasis, links, tags
names         names that the vocabulary splits into many tokens
nonwords      parts that are no words, found by what they are not
pairs         quotation marks and brackets
phrases       phrases of the caller: forms of an entry, and their search
masking       search for phrases that are not translated
masked_text   texts with marks in the place of phrases, and back
structured    parts of structured data and code that are no prose
spelling      spelling of amounts and names in answers
mend          repair of missing and repeated placeholders
"""
