"""Editing trees, against making them anew."""

from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.vault.editing import Leaf, TreeEditor, TreeWriter
from checkpointd.vault.objects import MODE_FILE, TREE, object_id, parse_tree
from checkpointd.vault.packs import PackBuilder

names = st.sampled_from([b"a", b"a.b", b"a0", b"b", b"caf\xe9", b"z"])
paths = st.lists(names, min_size=1, max_size=4).map(b"/".join)


class Objects:
    """Trees by their ids, in memory."""

    def __init__(self) -> None:
        self.trees: dict[bytes, bytes] = {}
        self.builder = PackBuilder()
        self.editor = TreeEditor(lambda oid: parse_tree(self.trees[oid]))
        add = self.builder.add

        def noting(kind: int, data: bytes) -> bytes:
            oid = add(kind, data)
            if kind == TREE:
                self.trees[oid] = data
            return oid

        self.builder.add = noting  # type: ignore[method-assign]

    def made(self, files: dict[bytes, bytes]) -> bytes:
        writer = TreeWriter(self.builder.add)
        for path in sorted(files):
            writer.add(path, MODE_FILE, files[path])
        return writer.finish()


def apply(files: dict[bytes, bytes], edits: dict[bytes, bytes | None]) -> dict[bytes, bytes]:
    """What the edits mean: a file takes the place of a folder, and a folder that of a file."""
    files = dict(files)
    for path, oid in sorted(edits.items()):
        for other in list(files):
            if other == path or other.startswith(path + b"/") or (oid is not None and path.startswith(other + b"/")):
                del files[other]
        if oid is not None:
            files[path] = oid
    return files


blobs = st.binary(min_size=20, max_size=20).filter(any)


@given(
    st.dictionaries(paths, blobs, max_size=12),
    st.lists(st.dictionaries(paths, st.none() | blobs, max_size=6), max_size=4),
)
@settings(max_examples=200, deadline=None)
def test_editing_gives_the_tree_that_making_anew_gives(start, rounds):
    objects = Objects()
    files = apply({}, start)
    tree = objects.made(files)
    for edits in rounds:
        # No file below another that is put: no work tree can look like that.
        edits = {
            path: oid
            for path, oid in edits.items()
            if not any(other is not None and path.startswith(above + b"/") for above, other in edits.items())
        }
        files = apply(files, edits)
        leaves = {path: None if oid is None else Leaf(MODE_FILE, oid) for path, oid in edits.items()}
        tree = objects.editor.edit(tree, leaves, objects.builder)
        assert tree == objects.made(files)
        assert dict(objects.editor.files(tree, b"")) == {path: Leaf(MODE_FILE, oid) for path, oid in files.items()}
        for path in [*files, *edits]:
            found = objects.editor.find(tree, path)
            assert (found is not None and not found.is_tree) == (path in files)


def test_two_thousand_levels_are_edited():
    objects = Objects()
    path = b"/".join([b"d"] * 2000)
    tree = objects.editor.edit(object_id(TREE, b""), {path: Leaf(MODE_FILE, b"x" * 20)}, objects.builder)
    assert objects.editor.find(tree, path) == Leaf(MODE_FILE, b"x" * 20)
    assert objects.editor.edit(tree, {path: None}, objects.builder) == object_id(TREE, b"")
