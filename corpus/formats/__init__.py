"""The formats of files, read and written in shards.

records     bytes cut into lines, or into the records of CSV
text        plain text, a text a line
delimited   TSV and CSV
jsonl       JSON lines
lines       readers and writers of files made of lines
parquet     Parquet by row groups (extra `corpus`)
table       what reads and writes each format
"""
