"""What kind of work a session is, guessed from what was asked and what was written."""

import re

from checkpointd.model.checkpoint import WorkType
from checkpointd.model.digest import Digest

_REVIEW = re.compile(
    r"(?i)\b(?:code[- ])?review\b|\bpull request\b|\b(?:PR|MR) #?\d+|\büberprüf|\bbegutacht|\bdrüberschau|"
    r"审查|评审|审阅|复审"
)
_DEBUG = re.compile(
    r"(?i)\b(?:fix|bug|bugs|debug|fails?|failing|broken|\w*errors?|crash(?:es|ed)?|regression|traceback|\w*exception|leaks?)\b|"
    r"\bfehler|\bbeheb|\bkaputt|\babsturz|\bstürzt|\bbricht\b.*\bab\b|修复|报错|调试|错误|失败|乱码"
)
_DESIGN = re.compile(
    r"(?i)\b(?:design|architecture|adr|rfc|trade-?offs?)\b|\bhow should\b|\bentwurf|\bentwirf|\barchitektur|konzept\b|"
    r"设计|架构|选型|方案"
)
_PLAN = re.compile(
    r"(?i)\b(?:plan|planning|roadmap|milestones?|goals|break (?:it )?down)\b|\bplane\b|\bplanung|\bziele\b|"
    r"计划|规划|目标"
)
_PROSE = (".md", ".rst", ".txt", ".adoc")


def guess(digest: Digest) -> WorkType | None:
    """The work type, None before anything was asked. The newest request speaks louder than the first."""
    if not digest.turn_count:
        return None
    asked = f"{digest.first_request}\n{digest.last_request}"
    written = [touch.path for touch in digest.files.values()]
    if any(not path.endswith(_PROSE) for path in written):
        return "debugging" if _DEBUG.search(asked) else "code_change"
    if _REVIEW.search(digest.last_request) or (not written and _REVIEW.search(asked)):
        return "review"
    for pattern, kind in _OF_WORDS:
        if pattern.search(digest.last_request if written else asked):
            return kind
    if written:
        return "code_change"
    if digest.plan_updates:
        return "planning"
    return "debugging" if _DEBUG.search(asked) and digest.attempts else "question"


_OF_WORDS: tuple[tuple[re.Pattern[str], WorkType], ...] = ((_PLAN, "planning"), (_DESIGN, "design"))
