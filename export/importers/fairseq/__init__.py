"""Folders of fairseq: `convoy convert fairseq`.

importer        a folder to a model, or several checkpoints to an ensemble
archive         which file of a folder is what: checkpoints, dictionaries, codes
options         what checkpoints say, by the defaults of their architectures
transformer     the map of Transformers
lightconv       the map of light and dynamic convolutions
lightconv_lm    the map of language models of dynamic convolutions
fconv           the map of ConvS2S
language_model  a language model for beside the model
"""
