"""Files from clients, and files for them.

document_processes: processes that read and write files for the server
documents: what clients send, opened, translated and given out
shared_records: small records, in memory or in a folder that several processes share
store: translated files, kept for a while
"""
