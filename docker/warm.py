"""Imports the modules of a server, so that the image, which is read-only later, has them compiled."""

from importlib import import_module

from documents import FORMATS

MODULES = ("cli.serve", "server.app", "server.supervisor", "engine.executors.onnx", "documents.worker")

for name in (*MODULES, *(f"documents.formats.{kind.module}" for kind in FORMATS.values())):
    import_module(name)
