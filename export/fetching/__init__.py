"""Fetch published models: each source lists its models, the files are downloaded, verified and imported.

offers        what a source offers: models with their files
web           requests over HTTP or to a folder, repeated after transient errors
download      one file, resumed and verified
unpack        files packed by gzip or Zstandard, with limits on their unpacked size
progress      one bar for all downloads, or lines of JSON
sources       the sources by the prefix of a name
firefox       Mozilla's Remote Settings, and mirrors of it
registry      Mozilla's registry of models, with its scores
argos         the index of Argos Translate's packages
hugging_face  repositories of Hugging Face, through its own library
mirror        a folder or web server with an index of ours
installing    a model on disk: lock, download, import, rename
languages     the directions that some languages need, and those on disk
job           the work of one command: find, fetch, keep the states
state         a file with the state of each model that a server waits for
"""
