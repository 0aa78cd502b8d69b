"""Folders of fairseq: `convoy convert fairseq`.

importer        reads one checkpoint as a model, or several as an ensemble
archive         finds the files of a folder: checkpoints, dictionaries, codes
byte_text       text sides of byte-level BPE and of bytes
options         options of checkpoints, with the defaults of their architectures
transformer     options and weights of Transformers
lightconv       options and weights of light and dynamic convolutions
lightconv_lm    options and weights of language models of dynamic convolutions
fconv           options and weights of ConvS2S
language_model  adds a language model for shallow fusion
"""
