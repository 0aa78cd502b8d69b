"""Models in CTranslate2's format, and packages of Argos Translate.

importer        `convoy convert ctranslate2`: reads a folder
argos           `convoy convert argos`: reads a package
packages        metadata of packages, read without torch
zips            unpacks zipped packages safely
variables       reads model.bin
sides           weights and configuration of an encoder or decoder
families        families of `transformers`, recognised by the vocabulary
texts           tokenizer settings and files of a model, by its family or by segmentation files
readers         reads the tokenizer of a family
vocabularies    symbols, with the special ones at the same ids on both sides
vocabulary_map  vmap.txt as a shortlist
"""
