"""Marian's own layout, and students of Firefox Translations and Bergamot, which have it too.

native              `convoy convert marian`: options, vocabularies and settings to a model
bergamot            `convoy convert bergamot`: a student to a model
options             what options of a model file mean, and what is not served
student_files       which file of a student's folder is what
bergamot_shortlist  lexical shortlists, as text and in their binary form
model               what a reader of Marian's models found, and what an import needs of it
weights             Marian's names to ours; int8 weights and their alphas
files               model files, options and vocabularies
binary              the binary form of a model file
compressed          files that may be packed by gzip or zstd
"""
