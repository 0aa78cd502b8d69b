"""Facts about words and tokens that sentence pairs teach.

known_words words that have a translation
shortlist   target tokens that are likely for a source token
lexicon     words that one word translates
"""
