"""A tokenizer for each kind of bundle: texts to token ids and back.

tokenizer          the protocol of tokenizers, and the table of kinds
left_to_right      what tokenizers share whose texts grow from left to right
pieces             SentencePiece
fairseq            Moses and subword-nmt, with fairseq's dictionaries
fairseq_pieces     SentencePiece, with fairseq's dictionaries
marian             SentencePiece, with vocabularies of their own (OPUS-MT)
mapped_pieces      SentencePiece, with ids of their own
byte_bpe           byte-level BPE
utf8_bytes         bytes as they are
added              tokens added to a vocabulary that was learned without them
subwords           Tensor2Tensor's subwords
symbols            symbols between spaces
dictionary         fairseq's dictionaries
unknown            words for unknown words
placeholder_words  placeholders for vocabularies without symbols of their own
"""
