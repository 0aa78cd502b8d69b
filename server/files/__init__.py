"""Files from clients, and files for them.

document_processes: processes that read and write files for the server
documents: what clients send, opened, translated and given out
journal: what processes that share a folder change in it
known_records: records of a shared folder as objects in memory
room: bytes that files take, of each owner too
shared_records: small records, in memory or in a folder that several processes share
store: translated files, kept for a while
"""
