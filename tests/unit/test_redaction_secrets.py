"""Secrets leave text; what only looks like one stays."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.text.redaction import redact, redact_value, secret_name

PEM = "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA75\nb3BlbnNzaC1rZXk=\n-----END RSA PRIVATE KEY-----"
HEX = "0123456789abcdef" * 4
SECRETS = [
    ("AKIA" + "IOSFODNN7EXAMPLF", "aws-key"),
    ("ghp_" + "a1B2" * 9, "github-token"),
    ("github_pat_" + "11ABCDEFG0" * 4, "github-token"),
    ("glpat-" + "abcDEF123456-_xyz789", "gitlab-token"),
    ("xoxb-" + "1234567890-abcdefGHIJ", "slack-token"),
    ("https://hooks.slack.com/services/" + "T00000000/B00000000/" + "X" * 24, "slack-webhook"),
    ("sk_live_" + "abcdefghij0123456789", "stripe-key"),
    ("whsec_" + "abcdefghij0123456789", "webhook-secret"),
    ("sk-ant-api03-" + "Ab1-" * 10, "anthropic-key"),
    ("sk-proj-" + "Ab1x" * 10, "openai-key"),
    ("AIza" + "SyA1234567890abcdefghijklmnopqrstuv", "google-key"),
    ("npm_" + "a1B2c3D4e5" * 4, "npm-token"),
    ("pypi-AgEIcHlwaS5vcmc" + "CJDE2NjU4ZTk0" * 5, "pypi-token"),
    ("eyJhbGciOiJIUzI1NiJ9." + "eyJzdWIiOiIxMjM0In0." + "dozjgNryP4J3jVmNHl0w5N", "jwt"),
    ("SG." + "abcdefghijklmnopqrstuv" + "." + "ABCDEFGHIJKLMNOPQRSTUVWX", "sendgrid-key"),
    ("123456789:AA" + "abcdefghijklmnopqrstuvwxyz0123456", "telegram-token"),
    ("shpat_" + "0123456789abcdef" * 2, "shopify-token"),
    ("dop_v1_" + HEX, "digitalocean-token"),
    ("hf_" + "abcdefghijABCDEFGHIJ0123456789", "huggingface-token"),
    ("hvs." + "CAESIAbcdefghijklmnopqrstuv", "vault-token"),
    ("AGE-SECRET-KEY-1" + "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L" * 2, "age-key"),
    (PEM, "private-key"),
    (PEM.replace("\n", "\\n"), "private-key"),
]


@pytest.mark.parametrize(("secret", "kind"), SECRETS)
def test_token_shapes_are_replaced_by_their_kind(secret: str, kind: str) -> None:
    cleaned = redact(f"before {secret} after")
    assert secret not in cleaned
    assert f"[redacted:{kind}]" in cleaned
    assert cleaned.startswith("before ")
    assert cleaned.endswith(" after")


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("Authorization: Bearer abc.def-123456", "abc.def-123456"),
        ("-H 'authorization: Basic dXNlcjpwYXNz'", "dXNlcjpwYXNz"),
        ("Cookie: session=abcdef123456; theme=dark", "abcdef123456"),
        ("postgres://app:hunter2@db.example.org/shop", "hunter2"),
        ("redis://:s3cret!pw@cache:6379/0", "s3cret!pw"),
        ("amqp://user:p@ss@host/x", "p@ss"),
        ("DB_PASSWORD=hunter2", "hunter2"),
        ("export API_KEY='abc123def456'", "abc123def456"),
        ('"client_secret": "abc123def456"', "abc123def456"),
        ('{\\"password\\": \\"correct horse\\"}', "correct horse"),
        ("password: hunter2", "hunter2"),
        ("aws_secret_access_key = wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "wJalrXUtnFEMI"),
        ("Server=db;User=sa;Password=Tr0ub4dor&3;Encrypt=yes", "Tr0ub4dor"),
        ("AccountName=x;AccountKey=abcd1234+/efgh5678==;EndpointSuffix=y", "abcd1234"),
        ("//registry.npmjs.org/:_authToken=1a2b-3c4d", "1a2b-3c4d"),
        ("machine api.example.org login ann password hunter2", "hunter2"),
        ("curl -u ann:hunter2 https://example.org", "hunter2"),
        ("mysql -u root -phunter2 shop", "hunter2"),
        ("deploy --token abcdef123456 --yes", "abcdef123456"),
        ("https://example.org/cb?access_token=abc123def456&x=1", "abc123def456"),
        ("<password>hunter2</password>", "hunter2"),
        ("x-api-key: 0123456789abcdef", "0123456789abcdef"),
        ("PRIVATE_KEY=" + HEX, HEX),
    ],
)
def test_secrets_are_known_by_their_place(text: str, secret: str) -> None:
    cleaned = redact(text)
    assert secret not in cleaned
    assert "[redacted:" in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "id 550e8400-e29b-41d4-a716-446655440000",
        "sha256:" + HEX,
        "max_tokens: 4096, tokens=12",
        "token = get_token(request)",
        "self.password = password",
        "def login(password: str, token: str | None = None) -> bool:",
        'password = os.environ["DB_PASSWORD"]',
        "API_KEY=$API_KEY",
        "password: ${DB_PASSWORD}",
        "token_count = tokenizer.count(text)",
        "PWD=/home/ann/shop",
        "secret_name(path)",
        'if token == "end": pass',
        "git clone git@github.com:a/b.git && curl http://localhost:8080/x@y",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJ ann@host",
        "task-runner-loading-indicator-with-a-long-name",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "FAILED tests/test_auth.py::test_password_reset - assert 1 == 2",
    ],
)
def test_what_only_looks_like_a_secret_stays(text: str) -> None:
    assert redact(text) == text


def test_a_key_block_without_an_end_goes_too() -> None:
    cleaned = redact("x\n-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\nBgkqhkiG9w0B\n\nthe rest, of it")
    assert "MIIEvQIBADAN" not in cleaned
    assert "BgkqhkiG9w0B" not in cleaned
    assert cleaned.endswith(", of it")


def test_values_are_walked() -> None:
    value = {"env": {"API_KEY": "abc123def456", "HOME": "/home/ann"}, "args": ["DB_PASSWORD=hunter2", 3, None]}
    assert redact_value(value) == {
        "env": {"API_KEY": "[redacted:secret]", "HOME": "/home/ann"},
        "args": ["DB_PASSWORD=[redacted:secret]", 3, None],
    }


@pytest.mark.parametrize(
    "name",
    [".env", ".env.local", "a/b/.env.production", "server.pem", "tls.KEY", "x.p12", "v.kdbx", "id_rsa", "id_ed25519",
     ".npmrc", ".pypirc", ".netrc", "credentials", "credentials.json", "service-account-1.json"],
)  # fmt: skip
def test_secret_names(name: str) -> None:
    assert secret_name(name.encode())


@pytest.mark.parametrize(
    "name",
    [".env.example", ".env.sample", "id_rsa.pub", "a.py", "key.py", "id_generator.py", "credentials.ts", "env",
     "credentials.json.template", ".env/readme.txt", "environment.yml"],
)  # fmt: skip
def test_names_that_hold_no_secret(name: str) -> None:
    assert not secret_name(name.encode())


def test_a_name_that_is_not_utf8_is_judged() -> None:
    assert secret_name(b"\xff\xfe.pem")
    assert not secret_name(b"\xff\xfe.txt")


PIECES = st.one_of(
    st.sampled_from([secret for secret, _ in SECRETS]),
    st.sampled_from(
        ["password=", 'token: "', "secret", "://u:", "@", "Bearer ", '"', "'", "\n", " ", "=", ":", "\\", "&",
         "a1b2c3d4e5",
         "[redacted:x]", "key", "-----BEGIN PRIVATE KEY-----", "curl -u a:", "<password>", "</", "eyJ", "."]
    ),
    st.text(max_size=6),
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(st.lists(PIECES, max_size=14))
def test_twice_is_once(pieces: list[str]) -> None:
    cleaned = redact("".join(pieces))
    assert redact(cleaned) == cleaned


@settings(max_examples=150, deadline=None)
@given(st.sampled_from(SECRETS), st.text(alphabet=" \n,;()<>|", max_size=8), st.text(alphabet=" \n,;()<>|", max_size=8))
def test_a_shape_is_found_wherever_it_stands(secret: tuple[str, str], before: str, after: str) -> None:
    assert secret[0] not in redact(before + secret[0] + after)


@pytest.mark.parametrize(
    "piece",
    ["a", "token=", "token: ", "://a:", 'password="', "-----BEGIN PRIVATE KEY-----", "eyJ", "eyJaaaaaaaaa.", "sk-",
     "curl ", "authorization: ", "login a password ", "--token", "secret_", " ", "\\", "x.", "<a", "bearer ", "SG."],
)  # fmt: skip
def test_a_megabyte_of_near_misses_takes_linear_time(piece: str) -> None:
    def seconds(size: int) -> float:
        text = piece * (size // len(piece))
        begin = time.process_time()
        redact(text)
        return time.process_time() - begin

    small = seconds(32 * 1024)
    # Sixteen times the text; quadratic would be 256 times. The floor keeps clock ticks out.
    assert seconds(512 * 1024) < 80 * max(small, 0.004)
