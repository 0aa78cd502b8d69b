"""Imports the modules of a server, so that the image, which is read-only later, has them compiled."""

from importlib import import_module

from documents import FORMATS
from export.shapes import stand_in

MODULES = ("cli.serve", "server.preloaded", "engine.executors.onnx", "documents.worker")
# modules of the process that fetches missing models; some of them import torch, or what replaces it here
FETCHING = ("cli.fetch", "export.fetching.sources", "export.fetching.job", "export.importers.proving")
IMPORTING = ("export.importers.importing", "export.importers.marian.bergamot", "export.graphs.onnx")

stand_in()
formats = (f"documents.formats.{kind.module}" for kind in FORMATS.values())
for name in (*MODULES, *FETCHING, *IMPORTING, *formats):
    import_module(name)
