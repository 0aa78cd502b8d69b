"""Text to tokens and back: a tokenizer for each kind of bundle, and what goes before and after.

tokenizer       the protocol of tokenizers, and the table of kinds
left_to_right   what tokenizers share whose texts grow from left to right
pieces          SentencePiece
fairseq         Moses and subword-nmt, with fairseq's dictionaries
fairseq_pieces  SentencePiece, with fairseq's dictionaries
marian          SentencePiece, with vocabularies of their own (OPUS-MT)
mapped_pieces   SentencePiece, with ids of their own
byte_bpe        byte-level BPE
utf8_bytes      bytes as they are
subwords        Tensor2Tensor's subwords
symbols         symbols between spaces
dictionary      fairseq's dictionaries
places          where in a text its pieces are
unknown         words for unknown words
split           sentences of a text
patterns        what stays as it is, as patterns
phrases         many phrases, found at once
protect         what must not be translated
numerals        amounts as each language writes them
borrowed        placeholders for models without symbols of their own
mend            placeholders that are missing or come twice
form            capitals and final marks of the source
detect          the language of a text
codes           codes of languages
"""
