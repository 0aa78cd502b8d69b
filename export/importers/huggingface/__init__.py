"""Folders of `transformers`: `convoy convert hf`, and `convoy convert marian` for Marian's in this layout.

importer        a folder to a model, by its kind
bart            the map of BART, mBART, PEGASUS, M2M-100, NLLB-200 and FSMT
t5              the map of T5, mT5, UMT5, ByT5 and MADLAD-400
marian          Marian's models in this layout
family          what the maps have in common: text sides, configurations
generation      settings of the search: carried over, named or refused
text            which file of the text side is what, which ids, which symbols name languages
tokenizer_json  tokenizer.json alone, as the files that our tokenizers read
adapters        LoRA adapters, merged into their base
files           settings, weights in one file or in shards, added tokens
language_codes  the symbols that multilingual models name languages by
"""
