"""Bulk translation: many processes translate files, and each line is written exactly once.

job         everything that the bytes of the output depend on: models, options, columns, sizes
line        a line of an input: its text, its status, and a window of lines
streams     decompressed bytes of a local or remote file; detects bombs and truncations
inputs      files to translate: their formats, and the names of their outputs
plan        files and their shards
formats/    readers and writers for the formats of files
cutting     cuts files into shards of a fixed number of lines
folder      the output folder: plan, finished shards, manifest; every file in it is complete
leases      the right of one process to write a shard, on a shared file system
columns     columns of the output: translation, score, flags, alignment
answering   has an engine translate windows of lines: sorted, each text once
output      the unfinished output of a shard, and its counts
worker      claims, translates and commits shards until none is left
engines     opens an engine in this process or in helper processes
ray_data    the same job as a Ray Data pipeline (extra `ray-data`)
progress    progress of all processes: bar, JSON lines, Prometheus metrics
"""
