"""Placeables: what is not a word in a text and stays as it is in a translation, found, masked and put back.

amounts       patterns of the grammar: numbers, times, formulas, pictures
code          patterns of the grammar: addresses, files, and what people who program write
counterparts  titles, dates and abbreviations as the other language writes them
grammar       the table of what stays as it is: kinds, patterns, examples
markup        formats in plain text: emphasis, links, tags, capitals
names         names that the vocabulary breaks into crumbs
pairs         quotation marks and brackets
phrases       many phrases, found at once
masking       texts with placeholders for what must not be translated
numerals      amounts as each language writes them
spelling      amounts and names in answers, as the source spells them
mend          placeholders that are missing or come twice
"""
