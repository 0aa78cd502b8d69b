"""Files of clients, and stored records.

document_processes: processes that parse and write files for the server
documents: documents of clients: read, translate, download
journal: journal of changes in a folder that processes share
known_records: records of a shared folder, cached as objects
room: bytes of stored files, of each owner and of all
shared_records: small records, in memory or in a folder that several processes share
store: translated files, stored until they expire
work: bytes of files that are being translated, of each owner and of all
"""
