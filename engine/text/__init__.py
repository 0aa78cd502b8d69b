"""Text to tokens and back, and what goes before and after.

tokenizers  a tokenizer for each kind of bundle
placeables  what is not a word, and stays as it is
places      where in a text its pieces are
split       sentences of a text
form        capitals and final marks of the source
words       words that a bundle treats by rule
detect      the language of a text
first_words words that people type first, by language
codes       codes of languages
languages   rules of each language
"""
