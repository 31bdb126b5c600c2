"""How many lines a change added and removed."""

from collections import Counter

_LIMIT = 4 << 20


def count(old: bytes | None, new: bytes | None) -> tuple[int, int] | None:
    """(added, removed) lines between two contents; None for binary or very large ones.

    Exact for one edited region. With several, a line that moved between them is not counted:
    head and tail are cut off, the rest is compared as a bag of lines, which costs one pass.
    """
    if len(old or b"") + len(new or b"") > _LIMIT:
        return None
    if b"\0" in (old or b"")[:8000] or b"\0" in (new or b"")[:8000]:
        return None
    before, after = (old or b"").splitlines(), (new or b"").splitlines()
    start = 0
    while start < len(before) and start < len(after) and before[start] == after[start]:
        start += 1
    end = 0
    limit = min(len(before), len(after)) - start
    while end < limit and before[-1 - end] == after[-1 - end]:
        end += 1
    gone, come = before[start : len(before) - end], after[start : len(after) - end]
    left, common = Counter(gone), 0
    for line in come:
        if left.get(line):
            left[line] -= 1
            common += 1
    return len(come) - common, len(gone) - common
