"""A tokenizer for each kind of bundle: texts to token ids and back.

tokenizer          the protocol of tokenizers, and the table of kinds
left_to_right      base of tokenizers whose text only grows at its end
pieces             SentencePiece
fairseq            Moses and subword-nmt, with fairseq's dictionaries
fairseq_pieces     SentencePiece, with fairseq's dictionaries
marian             SentencePiece, with a vocabulary for each side (OPUS-MT)
mapped_pieces      SentencePiece, with other ids
byte_bpe           byte-level BPE
word_pieces        BERT's pieces
utf8_bytes         bytes as tokens
characters         code points as tokens, for models of other servers
added              tokens added to a vocabulary after training
subwords           Tensor2Tensor's subwords
symbols            vocabularies that are lists of symbols (CTranslate2, THUMT)
dictionary         fairseq's dictionaries
unknown            source words in the place of unknown words
placeholder_words  placeholders for vocabularies without placeholder symbols
"""
