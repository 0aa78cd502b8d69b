"""Strings of programs: files of translators and developers, with placeholders, tags and plurals.

messages    a string with its placeholders and plurals; JSON, .arb of Flutter
resources   XML of Android, .NET and Qt
pairs       .properties of Java, .strings of Apple
yaml        YAML
po          catalogues of gettext
xliff       XLIFF 1 and 2
"""
