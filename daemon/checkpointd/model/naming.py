"""Ids, slugs and names of checkpoints."""

import re
import unicodedata
from collections.abc import Callable
from datetime import UTC, datetime

ID_PATTERN = re.compile(r"ckpt-\d{8}-\d{6}-[0-9a-f]{8}")


def checkpoint_id(now: datetime, random_hex: str) -> str:
    """`ckpt-YYYYMMDD-HHMMSS-xxxxxxxx`: UTC time and eight hex digits."""
    return f"ckpt-{now.astimezone(UTC):%Y%m%d-%H%M%S}-{random_hex[:8]}"


def slug(text: str, limit: int = 40) -> str:
    """Lower-case kebab, ASCII, at most `limit` characters; "" when nothing is left."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    words = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")
    return words[:limit].rstrip("-")


def default_name(now: datetime, feature: str | None) -> str:
    """`<date>-<feature slug>` where a feature is active, else `<date>-<HHMM>`."""
    tail = slug(feature) if feature else ""
    return f"{now:%Y-%m-%d}-{tail}" if tail else f"{now:%Y-%m-%d-%H%M}"


def unique_name(wanted: str, exists: Callable[[str], bool]) -> str:
    """`wanted`, or `wanted-2`, `wanted-3`, ...: nothing is ever overwritten."""
    if not exists(wanted):
        return wanted
    number = 2
    while exists(f"{wanted}-{number}"):
        number += 1
    return f"{wanted}-{number}"
