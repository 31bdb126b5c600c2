"""Who says which feature a checkpoint belongs to."""

import pytest

from checkpointd.model.linkage import Linkage, resolve


def test_the_stronger_voice_wins() -> None:
    voices = {"setting": "F-2", "agent_file": b'{"activeFeature": "F-3"}', "branch": "F-4-parser"}
    assert resolve(feature="F-1", **voices) == Linkage(feature="F-1", source="command line")
    assert resolve(platform="ci", feature="F-1", **voices) == Linkage(platform="ci", source="command line")
    assert resolve(unassigned=True, feature="F-1", **voices) == Linkage(source="command line")
    assert resolve(**voices) == Linkage(feature="F-2", source="setting")
    assert resolve(agent_file=voices["agent_file"], branch="F-4") == Linkage(feature="F-3", source="agent file")


@pytest.mark.parametrize(
    ("branch", "feature"),
    [("F-12-parser", "F-12"), ("feature/ABC-7", "ABC-7"), ("main", None), ("UTF-8x", None), ("u/F-3/x", "F-3")],
)
def test_a_branch_may_name_its_feature(branch: str, feature: str | None) -> None:
    assert resolve(branch=branch).feature == feature


@pytest.mark.parametrize("data", [b"", b"[]", b'{"activeFeature": 3}', b"\xff"])
def test_a_foreign_file_that_makes_no_sense_names_nothing(data: bytes) -> None:
    assert resolve(agent_file=data) == Linkage()


def test_the_pattern_may_be_another() -> None:
    assert resolve(branch="story-77", pattern=r"story-\d+").feature == "story-77"
