"""Folders of `transformers`: `convoy convert hf`, and `convoy convert marian` for Marian in this layout.

importer        reads a folder by its kind of model
kinds           model types and classes, read or refused with a reason
bart            options and weights of BART, Blenderbot, mBART, PEGASUS, M2M-100, NLLB-200 and FSMT
t5              options and weights of T5, mT5, UMT5, ByT5 and MADLAD-400
marian          reads Marian's models in this layout
family          code that all families share: text sides, configurations
generation      decoding settings: supported, without counterpart, or refused
text            text sides: tokenizer files, special ids and symbols of languages
text_parts      steps that the readers of text sides share
mbart_text      text sides of mBART-50, mBART-25, BARThez and BARTpho
byte_text       text sides with byte-level BPE
word_text       text sides with BERT's pieces
tokenizer_json  converts tokenizer.json to the files that our tokenizers read
adapters        merges LoRA adapters into their base
files           reads settings, weights in one file or in shards, added tokens
language_codes  symbols of languages in multilingual models
"""
