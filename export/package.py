"""Make a mirror of a folder of models: write an index of its bundles and students."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from engine.bundle.bundle import open_bundle
from engine.bundle.manifest import MANIFEST
from engine.errors import CheckpointError
from export.fetching.mirror import MirrorModel, mirror_file, write_index
from export.fetching.offers import BUNDLE
from export.importers.marian.student_files import find_student, find_students, names_of


def package(tree: Path) -> list[MirrorModel]:
    """Write the index of a folder of models, and return the models; an existing index is replaced.

    Every bundle is opened and verified first. Raises BundleError and CheckpointError.
    """
    if not tree.is_dir():
        raise CheckpointError(f"{tree}: there is no such folder")
    models = [*_bundles(tree), *_students(tree)]
    if not models:
        raise CheckpointError(f"{tree}: holds neither a bundle nor a student of Firefox or Bergamot")
    names = [model.name for model in models]
    if len(set(names)) < len(names):
        raise CheckpointError(f"{tree}: two models have the name {max(names, key=names.count)!r}")
    write_index(tree, models)
    return models


def _bundles(tree: Path) -> Iterator[MirrorModel]:
    """Verify and describe each bundle in a folder. Raises CheckpointError."""
    for manifest in sorted(tree.rglob(MANIFEST)):
        folder = manifest.parent
        if any(part.startswith(".") for part in folder.relative_to(tree).parts):
            continue
        if folder == tree:
            raise CheckpointError(f"{tree}: is a bundle; name the folder that holds it")
        bundle = open_bundle(folder)
        paths = (manifest, *(folder / name for name in bundle.files()))
        files = tuple(mirror_file(tree, path) for path in paths)
        place, architecture = folder.relative_to(tree).as_posix(), bundle.config.architecture
        yield MirrorModel(folder.name, bundle.source, bundle.target, architecture, files, BUNDLE, place)


def _students(tree: Path) -> Iterator[MirrorModel]:
    """Describe each student in a folder. Raises CheckpointError."""
    folders = [folder for folder in find_students(tree) if not (folder / MANIFEST).exists()]
    for name, folder in names_of(folders, tree).items():
        source, target = find_student(folder).languages
        if not (source and target):
            raise CheckpointError(f"{folder}: no name of a file says its languages, such as model.deen.bin")
        paths = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
        files = tuple(mirror_file(tree, path) for path in paths)
        above = folder.relative_to(tree).parts[:-1]
        yield MirrorModel(name, source, target, above[-1] if above else "", files)
