"""Marian's own layout, and students of Firefox Translations and Bergamot, which have the same layout.

native              `convoy convert marian`: reads a model's options, vocabularies and decoding settings
bergamot            `convoy convert bergamot`: reads a student
options             checks the options of a model file
student_files       finds the files of a student
bergamot_shortlist  reads lexical shortlists, text or binary
model               converts a Marian model to an `ImportedModel`
weights             renames weights; int8 weights and their alphas
files               reads model files, options and vocabularies
binary              reads binary model files
compressed          reads files that may be packed by gzip or Zstandard
"""
