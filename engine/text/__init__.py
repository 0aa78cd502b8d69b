"""Text to tokens and back, with the steps before and after.

tokenizers  a tokenizer for each kind of bundle
placeables  numbers, addresses, names and other parts that stay as they are
places      positions of tokens in a text
split       sentences of a text
newlines    line breaks within sentences
wrapping    lines into which an answer is wrapped
numerals    amounts in the form of each language
numbers     numbers in digits and in words, to compare a source with its answer
form        capitals and final marks of a sentence
capitals    words in capitals within a sentence
words       fixed phrases and the rule for names of a bundle
known_words words that the training data of a bundle translates
unknown_words names and rare words, which a model copies badly
given_names given names, titles and particles of names
detect      language detection
foreign     quotations in another language
language_names names of languages, by code
first_words common words of each language, for detection
codes       language codes
languages   rules of each language
"""
