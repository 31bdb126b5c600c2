"""Which feature or platform topic a checkpoint belongs to."""

import re
from typing import Literal

import msgspec
from msgspec import Struct

BRANCH_PATTERN = r"(?:^|/)(F-\d+|[A-Z][A-Z0-9]+-\d+)(?=$|[-_/])"
"""A feature id at the beginning of a part of the branch's name; the first group is the id."""

Source = Literal["command line", "setting", "agent file", "branch", "none"]


class Linkage(Struct, frozen=True, kw_only=True):
    """At most one of the two; neither means unassigned. `source` says who named it."""

    feature: str | None = None
    platform: str | None = None
    source: Source = "none"


def resolve(
    *,
    feature: str | None = None,
    platform: str | None = None,
    unassigned: bool = False,
    setting: str | None = None,
    agent_file: bytes | None = None,
    branch: str | None = None,
    pattern: str = BRANCH_PATTERN,
) -> Linkage:
    """The linkage by the strongest voice: the command line, the project's setting, an agent's own project file
    (`.cap/SESSION.json`), the branch's name. Raises re.error on a pattern that is none."""
    if unassigned:
        return Linkage(source="command line")
    if platform:
        return Linkage(platform=platform, source="command line")
    if feature:
        return Linkage(feature=feature, source="command line")
    if setting:
        return Linkage(feature=setting, source="setting")
    if agent_file and (named := _named(agent_file)):
        return Linkage(feature=named, source="agent file")
    if branch and (match := re.search(pattern, branch)):
        return Linkage(feature=match[1] if match.re.groups else match[0], source="branch")
    return Linkage()


class _AgentFile(Struct, frozen=True, rename="camel"):
    active_feature: str | None = None


def _named(data: bytes) -> str | None:
    try:
        return msgspec.json.decode(data, type=_AgentFile).active_feature
    except msgspec.DecodeError:
        return None  # somebody else's file: not ours to complain about
