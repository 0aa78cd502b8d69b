"""Bulk translation: files in, the same files translated out, exactly once, by as many processes as there are.

job         what is translated and how: all that the bytes of the output depend on
line        a line of an input: its text, its status, and a window of lines
streams     bytes of a file wherever it lies, decompressed, with bombs and truncations noticed
inputs      files to translate: their formats, and the names that they get
plan        the nouns of a plan: files and shards
formats/    the formats of files, read and written in shards
cutting     files cut into shards of a stated number of lines
folder      the output folder: plan, shards done, manifest; what is there is whole
leases      who works on a shard, among processes that share a file system
columns     what may be written beside a text: translation, score, flags, alignment
answering   windows of lines through an engine: sorted, each text once, every line with a status
output      a shard in the making: its lines written aside, and what is noted of them
worker      one engine that claims, translates and commits shards until none is left
engines     what opens an engine, and more of them beside this one, each in a process
ray_data    the same job as a Ray Data pipeline (extra `ray-data`)
progress    how far all processes together are: bar, JSON lines, Prometheus metrics
"""
