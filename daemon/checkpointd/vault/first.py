"""Reading a whole work tree for the first time."""

import hashlib
import stat
from collections import Counter
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from checkpointd.model.modes import Usual
from checkpointd.vault import scan
from checkpointd.vault.objects import forbidden_name
from checkpointd.vault.passes import MODE_GITLINK, Pass
from checkpointd.vault.reading import Root
from checkpointd.vault.zones import Others, Zone

_SAMPLE = 200  # files that say what the usual permission bits are
_WORTH_COPYING = 200  # objects; fewer are compressed faster than a child starts


class _Index(NamedTuple):
    """What the user's index lists, sorted: sorting 100,000 paths would hold the interpreter for too long."""

    files: list[bytes]
    absent: list[bytes]  # left out by a sparse checkout
    links: list[bytes]  # submodules
    oids: set[bytes]
    digest: "hashlib._Hash"


def take_whole(
    work: Pass, zone: Zone, root: Root, urgent: Iterable[bytes], incoming: Path, read: Callable[[Iterable[bytes]], None]
) -> Path | None:
    """Reads every file of the root zone and of the repositories nested in it; urgent ones first, then what is tracked.

    What the user's repository has packed is copied by one git child meanwhile: every file is hashed all the same, but
    only what the copy lacks is compressed. Returns the copied pack, in `incoming`.
    """
    zone.index_stamp = zone.stamp()
    with ThreadPoolExecutor(2, thread_name_prefix="first") as pool:
        looking = pool.submit(zone.look, users_index=True)
        listed = _listed(zone, root)
        oids = listed.oids if len(listed.oids) >= _WORTH_COPYING else set()
        copying = pool.submit(zone.copy_objects, oids, incoming)
        others = looking.result()
        work.known = oids.__contains__
        _read_in_order(work, zone, root, listed, others, urgent, read)
        pack = copying.result()
    if pack is None and oids:
        work.known = lambda _: False
        read([path for path, leaf in work.captured() if leaf.oid in oids])
    _note_specials(work, root)
    return pack


def _listed(zone: Zone, root: Root) -> _Index:
    found = _Index([], [], [], set(), hashlib.sha1())
    last = b""
    for entry in zone.tracked():  # sorted by path; an unmerged one comes up to three times
        found.digest.update(entry.line)
        if entry.mode != MODE_GITLINK:
            found.oids.add(entry.oid)
        if entry.path == last:
            continue
        last = entry.path
        if entry.mode == MODE_GITLINK:
            found.links.append(last)
        elif entry.absent and root.look(last).info is None:
            found.absent.append(last)
        else:
            found.files.append(last)
    return found


def _read_in_order(
    work: Pass,
    zone: Zone,
    root: Root,
    listed: _Index,
    others: Others,
    urgent: Iterable[bytes],
    read: Callable[[Iterable[bytes]], None],
) -> None:
    files = listed.files
    zone.tracked_digest = listed.digest.digest()
    zone.others = others.names
    zone.note_tracked(files)
    work.add_tracked(files)
    scan.note_sparse(work.ledger, zone, listed.absent, files)
    scan.note_unopened(work.ledger, zone, others)
    work.ledger.usual = _usual(root, files or [name for name in others.names if not name.endswith(b"/")])
    new = work.find({*(name.rstrip(b"/") for name in others.names), *listed.links})
    wanted = set(new)
    first = dict.fromkeys(path for path in urgent if path in wanted or path in work.tracked)
    read(first)
    read(path for path in files if path not in first)
    read(path for path in new if path not in first)
    while work.turned:
        turned, work.turned = work.turned, set()
        read(work.find(turned))


def _usual(root: Root, paths: list[bytes]) -> Usual:
    """The permission bits that most of some files have, and the folders they are in."""
    counts: dict[str, Counter[int]] = {"file": Counter(), "executable": Counter(), "folder": Counter()}
    for path in paths[:: max(1, len(paths) // _SAMPLE)]:
        for name in (path, path.rpartition(b"/")[0]):
            try:
                info = root.look(name).info if name else root.info()
            except PermissionError:
                continue
            if info is None or stat.S_ISLNK(info.st_mode):
                continue
            kind = "folder" if stat.S_ISDIR(info.st_mode) else "executable" if info.st_mode & 0o100 else "file"
            counts[kind][stat.S_IMODE(info.st_mode)] += 1
    return Usual(**{kind: count.most_common(1)[0][0] for kind, count in counts.items() if count})


def _note_specials(work: Pass, root: Root) -> None:
    """Names pipes, sockets and devices in captured folders: git does not tell of them."""
    for folder in sorted({path.rpartition(b"/")[0] for path in work.fresh}):
        work.check()
        try:
            names = root.specials(folder)
        except OSError:  # it has just gone
            continue
        for name in names:
            if not forbidden_name(name):
                work.ledger.skip(folder + b"/" + name if folder else name, "special")
