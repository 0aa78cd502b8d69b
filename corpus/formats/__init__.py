"""Readers and writers for the formats of files, shard by shard.

records     cuts bytes into lines or CSV records
text        plain text, one text a line
delimited   TSV and CSV
jsonl       JSON lines
lines       readers and writers of files made of lines
parquet     Parquet by row groups (extra `corpus`)
table       opens the reader and the writer of a format
"""
