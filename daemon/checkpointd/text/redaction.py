"""The gate that takes secrets out of text, and the file names that hold them.

Every rule runs in linear time: a rule starts at a literal, and what it reads from there
is bounded or consumed. Recall comes first where the shape is certain; where only the key
is (`password = ...`), the value has to look like one and not like code.
"""

import re
from fnmatch import fnmatchcase
from typing import NamedTuple

_SECRET_NAMES = (
    ".env", ".env.*", "*.pem", "*.key", "*.p12", "*.kdbx", "id_*", ".npmrc", ".pypirc", ".netrc", ".pgpass",
    "credentials*", ".credentials*", "service-account*.json",
)  # fmt: skip
_HARMLESS_ENDINGS = (".example", ".sample", ".template", ".tmpl", ".dist", ".pub")
# `id_*` and `credentials*` are also how people name modules, and a skipped module is lost work.
_SOURCE_ENDINGS = (
    ".c", ".cc", ".cpp", ".cs", ".css", ".dart", ".ex", ".exs", ".go", ".h", ".hpp", ".html", ".java", ".js", ".jsx",
    ".kt", ".lua", ".md", ".mjs", ".php", ".proto", ".py", ".pyi", ".rb", ".rs", ".rst", ".scala", ".sh", ".sql",
    ".svelte", ".swift", ".ts", ".tsx", ".vue",
)  # fmt: skip


def secret_name(path: bytes) -> bool:
    """Whether a file of this name looks like it holds secrets (the capture default, untracked files only)."""
    name = path.rsplit(b"/", 1)[-1].decode("utf-8", "surrogateescape").lower()
    if name.endswith(_HARMLESS_ENDINGS) or (name.startswith(("id_", "credentials")) and name.endswith(_SOURCE_ENDINGS)):
        return False
    return any(fnmatchcase(name, pattern) for pattern in _SECRET_NAMES)


class _Shape(NamedTuple):
    """A token that is known by how it looks. `hints`: one of them is in every text that holds it."""

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]


def _shape(kind: str, hints: str, pattern: str) -> _Shape:
    return _Shape(kind, tuple(hints.split()), re.compile(r"(?<![A-Za-z0-9])" + pattern))


_SHAPES = (
    _shape("aws-key", "AKIA ASIA ABIA ACCA", r"A(?:KIA|SIA|BIA|CCA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _shape("github-token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{20,}"),
    _shape("github-token", "github_pat_", r"github_pat_[A-Za-z0-9_]{20,}"),
    _shape("gitlab-token", "gl", r"gl(?:pat|dt|rt|cbt|ptt|ft|imt|agent|oas|soat|ffct)-[A-Za-z0-9_.-]{18,}"),
    _shape("slack-token", "xox xapp-", r"(?:xox[a-z](?:\.xox[a-z])?|xapp)-[A-Za-z0-9-]{10,}"),
    _shape(
        "slack-webhook", "hooks.slack.com", r"hooks\.slack\.com/(?:services|workflows|triggers)/[A-Za-z0-9/_-]{16,}"
    ),
    _shape("discord-webhook", "api/webhooks/", r"discord(?:app)?\.com/api/webhooks/\d+/[\w-]{20,}"),
    _shape("discord-token", ".", r"[MNO][\w-]{23,25}\.[\w-]{6}\.[\w-]{27,}"),
    _shape("stripe-key", "_live_ _test_", r"(?:[srp]k|rk)_(?:live|test)_[A-Za-z0-9]{10,}"),
    _shape("webhook-secret", "whsec_", r"whsec_[A-Za-z0-9+/=]{16,}"),
    _shape("anthropic-key", "sk-ant-", r"sk-ant-[A-Za-z0-9_-]{16,}"),
    _shape("openai-key", "sk-", r"sk-(?=[a-z_-]{0,40}[A-Z0-9])(?:[a-z]{2,8}-)?[A-Za-z0-9_-]{20,}"),
    _shape("openai-key", "sess-", r"sess-[A-Za-z0-9]{40,}"),
    _shape("google-key", "AIza", r"AIza[A-Za-z0-9_-]{35}"),
    _shape("google-secret", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    _shape("google-token", "ya29.", r"ya29\.[A-Za-z0-9_.-]{20,}"),
    _shape("npm-token", "npm_", r"npm_[A-Za-z0-9]{30,}"),
    _shape("pypi-token", "pypi-", r"pypi-[A-Za-z0-9_-]{16,}(?=[^A-Za-z0-9_-]|$)(?<=[A-Za-z0-9_-]{40})"),
    _shape("jwt", "eyJ", r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]+"),
    _shape("sendgrid-key", "SG.", r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _shape("twilio-key", "SK", r"SK[0-9a-f]{32}(?![0-9A-Za-z])"),
    _shape("mailgun-key", "key-", r"key-[0-9a-f]{32}(?![0-9A-Za-z])"),
    _shape("telegram-token", ":AA", r"\d{8,10}:AA[A-Za-z0-9_-]{33}"),
    _shape("shopify-token", "shp", r"shp(?:at|ca|pa|ss)_[A-Fa-f0-9]{32}"),
    _shape("digitalocean-token", "_v1_", r"do[opr]_v1_[a-f0-9]{64}"),
    _shape("huggingface-token", "hf_", r"hf_[A-Za-z0-9]{30,}"),
    _shape("databricks-token", "dapi", r"dapi[a-f0-9]{32}(?:-\d)?"),
    _shape("vault-token", "hvs. hvb. hvr.", r"hv[sbr]\.[A-Za-z0-9_-]{20,}"),
    _shape("terraform-token", ".atlasv1.", r"[A-Za-z0-9]{14}\.atlasv1\.[A-Za-z0-9_-]{40,}"),
    _shape("atlassian-token", "ATATT3 ATBB ATCTT3", r"AT(?:ATT3|CTT3|BB)[A-Za-z0-9_=-]{24,}"),
    _shape("age-key", "AGE-SECRET-KEY-", r"AGE-SECRET-KEY-1[0-9A-Z]{40,}"),
    _shape("airtable-token", "pat", r"pat[A-Za-z0-9]{14}\.[a-f0-9]{64}"),
    _shape("square-token", "sq0", r"sq0[a-z]{3}-[A-Za-z0-9_-]{22,}"),
    _shape(
        "service-token",
        "dckr_pat_ lin_api_ ntn_ figd_ NRAK- glc_ glsa_ sntrys_ sntryu_ PMAK- sbp_ gsk_ xai- r8_ pplx- HRKU- rubygems_"
        " pscale_ nfp_ dp. fo1_ tfp_ EZAK key_live_ shippo_live_ rdme_ ddp_ pul- cio AKCp",
        r"(?:dckr_pat_|lin_api_|ntn_|figd_|NRAK-|glc_|glsa_|sntrys_|sntryu_|PMAK-|sbp_|gsk_|xai-|r8_|pplx-|HRKU-"
        r"|rubygems_|pscale_(?:tkn|pw|oauth)_|nfp_|dp\.(?:pt|st|ct|scim|audit)\.|fo1_|EZAK|ddp_|pul-|AKCp)"
        r"(?=[A-Za-z_-]{0,60}[0-9])[A-Za-z0-9_=+/.-]{20,}",
    ),
    _shape("notion-token", "secret_", r"secret_[A-Za-z0-9]{43}(?![A-Za-z0-9])"),
    _shape("signature", "X-Amz-Signature= X-Goog-Signature=", r"X-(?:Amz|Goog)-Signature=[0-9a-fA-F]{32,}"),
    _shape("signature", "sig=", r"sig=[A-Za-z0-9%+/_-]{30,}={0,2}"),
)

_BEGIN = re.compile(r"-----BEGIN (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_END = re.compile(r"-----END (?:[A-Z0-9]+ ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BODY = re.compile(r"(?:[A-Za-z0-9+/=\s]|\\[nr])*")

# Up to the last @ before a slash, a blank or a quote: people put @ into passwords.
_URL_PASSWORD = re.compile(r"(://[^\s/:@\"'<>\[]{0,256}:)((?!\[redacted:)[^\s/\"'<>`]{1,512})(?=@)")
_URL_TOKEN = re.compile(r"(://)((?=[^\s/:@]{0,99}\d)[A-Za-z0-9_-]{20,255})(?=@)")
_HEADER = re.compile(
    r"""(?i)((?:proxy-)?authorization\\?["']?[ \t]{0,4}[:=][ \t]{0,4}\\?["']?"""
    r"""(?:(?:bearer|basic|token|digest|negotiate|apikey)[ \t]{1,4})?+)"""
    r"""(?![\s"'\\$<{%]|\[redacted:)([^\s"'\\,;]{6,})"""
)
_BEARER = re.compile(r"(?i)(\b(?:bearer|basic)[ \t]{1,4})(?=[A-Za-z._~+/=-]{0,64}\d)([A-Za-z0-9._~+/-]{16,}={0,2})")
_COOKIE = re.compile(r"""(?i)(\b(?:set-)?cookie:[ \t]{0,4})(?!\s|\[redacted:)([^\r\n"']{8,})""")
_NETRC = re.compile(r"(?i)(\blogin\s{1,8}+\S{1,128}+\s{1,8}password\s{1,8}+)(?!\[redacted:)(\S{1,512})")
_USER_OPTION = re.compile(r"""(\s(?:-u|--user)[ =]?["']?[^\s:"']{1,100}:)(?!\[redacted:|\$)([^\s"']{1,200})""")
_PASSWORD_OPTION = re.compile(r"""(\s-p[ ]?["']?)(?!\[redacted:|\$|\d{1,5}:)([^\s"']{3,200})""")
_TAG = re.compile(
    r"(?i)(<[a-z0-9_.:-]{0,40}?(?:password|passwd|secret|token|apikey|api-key)>)"
    r"(?!\s|\[redacted:|\$)([^<>\n]{3,512})(?=</)"
)


class _Part(NamedTuple):
    """A secret that is known by what stands before it. `after`: a command that is shortly before it, "" for any."""

    kind: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    after: tuple[str, ...] = ()


_PARTS = (
    _Part("password", ("://",), _URL_PASSWORD),
    _Part("token", ("://",), _URL_TOKEN),
    _Part("authorization", ("authorization",), _HEADER),
    _Part("authorization", ("bearer", "basic"), _BEARER),
    _Part("cookie", ("cookie:",), _COOKIE),
    _Part("password", ("password",), _NETRC),
    _Part("password", ("curl",), _USER_OPTION, after=("curl",)),
    _Part("password", ("mysql", "mariadb", "sshpass"), _PASSWORD_OPTION, after=("mysql", "mariadb", "sshpass")),
    _Part("secret", ("</",), _TAG),
)

_KEYWORDS = (
    "password", "passwd", "passwort", "passphrase", "pwd", "pass", "secret", "token", "api[-_ ]?key", "access[-_]?key",
    "private[-_]?key", "account[-_]?key", "encryption[-_]?key", "signing[-_]?key", "master[-_]?key", "auth[-_]?key",
    "license[-_]?key", "deploy[-_]?key", "credential", "_auth",
)  # fmt: skip
_KEY_HINTS = ("pass", "pwd", "secret", "token", "key", "credential", "_auth")
_TAIL = 32
_KEY = re.compile(rf"(?i)({'|'.join(_KEYWORDS)})([A-Za-z0-9_.-]{{0,{_TAIL}}}+)")
_AFTER_KEY = frozenset("\\\"'] \t=:")
_SEPARATOR = re.compile(r"""(\\{0,3}+["']?\]?[ \t]{0,8}+)(=>|:=|[:=](?!=))([ \t]{0,8}+)""")
_BLANK = re.compile(r"""[ \t]{1,4}+(?=["']?[^\s"'-])""")
_QUOTED = re.compile(r"""(\\{0,3}+["'`])((?:(?!\1)[^\n]){1,1024})\1""")
_PLAIN = re.compile(r"""(?:[^\s"'`\\;<>|&]++|&(?![A-Za-z0-9_.-]{1,64}=))+""")
_WINDOW = 128  # as much of a value as a decision needs: many refused values must not cost more than a few accepted ones

_PASSWORDS = ("passw", "passp", "pwd", "pass")
_OTHER_TAILS = re.compile(
    r"(?i)(?:^|[_.-])(?:s|count|counts|type|types|url|uri|name|names|file|files|path|paths|dir|limit|budget|length|len"
    r"|size|field|label|prompt|policy|min|max|expires|expiry|ttl|regex|pattern|usage|used|header|param|endpoint|required"
    r"|reset|index|idx|kind|class|strategy|provider|manager|store|service|version|format|ref|id|ids|hint|help|total"
    r"|total|estimate|rate|price|cost|algorithm|scope|scopes|rotation|age|mode|status|state|error|errors|present|set)$"
)
_CAMEL_TAILS = re.compile(
    r"^(?:s|Count|Type|Url|Uri|Name|File|Path|Limit|Budget|Length|Size|Field|Label|Prompt|Policy|Usage|Header|Param"
    r"|Endpoint|Index|Kind|Class|Provider|Manager|Store|Service|Version|Format|Ref|Id|Ids|Error|Expir\w*)s?$"
)
_NO_SECRETS = frozenset((
    "none", "null", "nil", "true", "false", "undefined", "string", "str", "bytes", "number", "int", "integer",
    "text", "any", "optional", "required", "yes", "no", "on", "off", "secret", "password", "passwd", "token",
    "prompt", "stdin", "env", "file", "default", "empty", "unset", "hidden", "masked", "missing", "invalid",
    "expected",
))  # fmt: skip
_PLACEHOLDER = re.compile(
    r"(?i)^(?:[$<%*@]|\{\{|\[|\.{3}|x{4,}|process\.env|os\.(?:environ|getenv)|env\.|secrets\.|your[-_ ])"
)
_CHAIN = re.compile(r"[A-Za-z_]\w*(?:\??(?:\.|::|->)[A-Za-z_]\w*)+")
_BRACKET = re.compile(r"[()\[\]{}]")
_DIGIT = re.compile(r"\d")
_IDENTIFIER = re.compile(r"[A-Za-z_]+\d{0,2}")


def redact(text: str) -> str:
    """The text with each secret replaced by `[redacted:<kind>]`. Doing it twice changes nothing more."""
    # One replacement can bring another secret into shape (a blank that was in the way is gone), so
    # the rules run until nothing changes: once for ordinary text, twice where there was a secret.
    for _ in range(8):
        cleaned = _redact_once(text)
        if cleaned == text:
            break
        text = cleaned
    return text


def redact_value(value: object) -> object:
    """A JSON-like value with every string in it redacted; values below secret-looking keys as a whole."""
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact_value(key): _redact_member(key, member) for key, member in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([redact_value(member) for member in value])
    return value


def _redact_member(key: object, member: object) -> object:
    if isinstance(key, str) and isinstance(member, str) and member and '"' not in key + member:
        pair = f'"{key}": "{member}"'
        if _redact_assignments(pair) != pair:
            return "[redacted:secret]"
    return redact_value(member)


def _redact_once(text: str) -> str:
    if "PRIVATE KEY" in text:
        text = _redact_key_blocks(text)
    for shape in _SHAPES:
        if any(hint in text for hint in shape.hints):
            text = shape.pattern.sub(f"[redacted:{shape.kind}]", text)
    lower = text.lower()
    for part in _PARTS:
        if any(hint in lower for hint in part.hints):
            text = _redact_part(text, part)
    if any(hint in lower for hint in _KEY_HINTS):
        text = _redact_assignments(text)
    return text


def _redact_part(text: str, part: _Part) -> str:
    def replaced(match: re.Match[str]) -> str:
        before = text[max(0, match.start() - 300) : match.start()]
        if part.after and not any(command in before.rpartition("\n")[2] for command in part.after):
            return match[0]
        return f"{match[1]}[redacted:{part.kind}]"

    return part.pattern.sub(replaced, text)


def _redact_key_blocks(text: str) -> str:
    parts: list[str] = []
    position = 0
    last_end = max((match.end() for match in _END.finditer(text)), default=-1)
    while begin := _BEGIN.search(text, position):
        parts += [text[position : begin.start()], "[redacted:private-key]"]
        end = _END.search(text, begin.end()) if begin.end() < last_end else None
        # A block cut short has no end: what looks like its body goes.
        body = None if end else _KEY_BODY.match(text, begin.end())
        position = end.end() if end else body.end() if body else begin.end()
    return "".join(parts) + text[position:]


def _redact_assignments(text: str) -> str:
    """The text without the values of `KEY=value`, `key: value`, `"key": "value"` and `--key value`."""
    parts: list[str] = []
    position = copied = 0
    while key := _KEY.search(text, position):
        if text[key.end() : key.end() + 1] not in _AFTER_KEY:
            # Words within the tail share its end, so none of them has a value; a tail cut at its limit is read on.
            position = key.end() if len(key[2]) < _TAIL else key.end(1)
            continue
        span = _secret_span(text, key)
        if span is None:
            position = key.end(1)
            continue
        parts += [text[copied : span[0]], "[redacted:secret]"]
        position = copied = span[1]
    return "".join(parts) + text[copied:] if parts else text


def _secret_span(text: str, key: re.Match[str]) -> tuple[int, int] | None:
    """Where the value of a key is, if it is a secret."""
    word, tail = key[1], key[2]
    if not _is_secret_key(text[max(0, key.start() - 1) : key.start()], word, tail):
        return None
    password = word.lower().startswith(_PASSWORDS)
    separator = _SEPARATOR.match(text, key.end())
    option = None
    if separator is None:
        # `--db-password value`
        option = _BLANK.match(text, key.end()) if "--" in text[max(0, key.start() - 30) : key.start()] else None
        if option is None:
            return None
    start = separator.end() if separator else option.end() if option else key.end()
    if quoted := _QUOTED.match(text, start):
        return quoted.span(2) if _is_secret_literal(quoted[2], password=password) else None
    plain = _PLAIN.match(text, start, start + _WINDOW)
    if plain is None:
        return None
    after = text[plain.end() : plain.end() + 1]
    direct = option is not None or (separator is not None and separator[2] == "=" and not separator[1] + separator[3])
    if word.lower() == "pwd" and plain[0].startswith(("/", "~", ".")):
        return None
    if not _is_secret_plain(plain[0], after, direct=direct, password=password, shouted=word.isupper()):
        return None
    whole = _PLAIN.match(text, start)
    return whole.span() if whole else None


def _is_secret_plain(value: str, after: str, *, direct: bool, password: bool, shouted: bool) -> bool:
    """Whether a value without quotes is a secret. `direct`: `KEY=value` as a shell or an .env file has it."""
    bare = value.rstrip(",)}]")
    if not _may_be_secret(bare) or bare.endswith(("(", "[", "{")):
        return False
    if direct and bare == value and not _CHAIN.fullmatch(value):
        return len(value) >= (4 if password or shouted else 8)
    if _BRACKET.search(bare):
        return False
    return _is_secret_bare(
        bare, password=password, ends_line=after in ("", "\n", "\r", '"', "'", ";") and bare == value
    )


def _is_secret_key(before: str, word: str, tail: str) -> bool:
    """Whether the whole key, of which `word` is a part, names a secret and not something about one."""
    if tail[:1].islower() and tail != "s" and not word.isupper():
        return False  # tokenizer, passenger, secretary
    if word.lower() == "token" and tail in ("s", "S"):
        return False  # counts of a model's tokens
    if word.lower() == "pass" and before.isalpha() and (before.isupper() or word[0].islower()):
        return False  # bypass, compass
    return not (_OTHER_TAILS.search(tail) or _CAMEL_TAILS.match(tail))


def _may_be_secret(value: str) -> bool:
    if len(value) < 4 or value.lower() in _NO_SECRETS or _PLACEHOLDER.match(value):
        return False
    return not (value.isdigit() and len(value) < 6)


def _is_secret_literal(value: str, *, password: bool) -> bool:
    if not _may_be_secret(value):
        return False
    if password:
        return value.count(" ") <= 8
    if " " in value:
        return False
    return len(value) >= 8 and (len(value) >= 20 or not value.isalpha())


def _is_secret_bare(value: str, *, password: bool, ends_line: bool) -> bool:
    """A value without quotes, in what may be code: it needs a digit among other characters."""
    if value.isdigit() or _CHAIN.fullmatch(value):
        return False
    mixed = _DIGIT.search(value) is not None
    if ends_line and password:
        return len(value) >= 6 and (mixed or not _IDENTIFIER.fullmatch(value) or value.islower())
    return mixed and len(value) >= 10 and not _IDENTIFIER.fullmatch(value)
