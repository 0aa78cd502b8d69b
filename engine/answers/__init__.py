"""Texts in, answers out: what surrounds the engine on both sides.

text_model  what the rest needs to know of a model
options     how texts are answered
plan        a text to sources: sentences, prefixes, placeholders
choices     answers to one sentence, with its phrases and marks
compose     results back to a text: alternatives, alignment, what stays as it was
formats     formats and phrases of a text, put back into its answer by attention
alignment   attention from pieces of the source to pieces of the answer, through two models too
quality     source words that nothing attended to, targets that go round
answer      texts through one model or two, as one group
stream      many texts through one engine, in order and in bounded memory
pivot       two models, one after the other
drafts      the certain beginnings of answers under way
score       how probable a text is
placeholders words of a vocabulary that a model copies, to be its placeholders
directions  models of several languages, and the names of their directions
canary      a model's first answer
"""
