"""A process in which importing torch or `transformers` fails, as in the serving installation."""

from __future__ import annotations

# code that a process runs first
HIDE = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
from export import shapes
shapes.find_spec = lambda name: None  # the stand-in has torch's place
"""
