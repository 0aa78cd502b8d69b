"""Texts in, answers out: the steps before and after decoding.

text_model  the properties of a model that this folder needs
options     options of an answer
sentence    one sentence as the model reads it
plan        a text as sources: sentences, prefixes, placeholders
numbering   wrong numbers of answers
choices     answers to one sentence, with its phrases and marks
compose     results as the answer to a text: alternatives, alignment, phrases
formats     formats and phrases of a text, inserted into its answer by attention
alignment   attention between pieces of the source and pieces of the answer, also through two models
quality     source words without attention, and repetitions in targets
answer      texts through one model or two, as one group
stream      many texts through one engine, in order and in bounded memory
pivot       two models, one after the other
routing     sentences in doubt, answered by a second model
drafts      certain beginnings of unfinished answers
score       probabilities of texts
placeholders  words of a vocabulary that a model copies, to be its placeholders
directions  the text side of a bundle, also of models of several languages
"""
