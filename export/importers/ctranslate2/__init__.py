"""What CTranslate2's converters wrote, and packages of Argos Translate.

importer        `convoy convert ctranslate2`: a folder to a model
argos           `convoy convert argos`: a package to a model
packages        what a package says of itself, read without torch
zips            zipped packages, unpacked with care
variables       model.bin
sides           variables to weights, attributes to the configuration of a side
vocabularies    symbols, special ones at the same ids on both sides
vocabulary_map  vmap.txt as a shortlist
"""
