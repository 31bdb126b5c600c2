"""The tokenizer: what would run, and with which words."""

from hypothesis import given, settings
from hypothesis import strategies as st

from checkpointd.model.shell import Choice, Command, Function, Group, Loop, Node, Script, Word, parse


def texts(script: Script) -> list[list[str]]:
    """The literal words of every simple command, in order; "?" for a word that depends on expansion."""
    found: list[list[str]] = []
    for pipeline in script.pipelines:
        for stage in pipeline.stages:
            found += of_node(stage)
    return found


def of_node(node: Node) -> list[list[str]]:
    match node:
        case Command():
            return [[shown(word) for word in node.words]]
        case Group():
            return texts(node.body)
        case Loop():
            return texts(node.condition) + texts(node.body)
        case Choice():
            return [words for part in node.parts for words in texts(part)]
        case Function():
            return [["function", node.name], *texts(node.body)]


def shown(word: Word) -> str:
    return "?" if word.literal is None else word.literal


def test_operators_separate_commands() -> None:
    assert texts(parse("a 1 && b; c || d | e & f\ng")) == [["a", "1"], ["b"], ["c"], ["d"], ["e"], ["f"], ["g"]]


def test_quotes_and_escapes_make_one_word() -> None:
    assert texts(parse(r"""rm "a b" 'c d' e\ f $'g\th' "i"'j'k""")) == [["rm", "a b", "c d", "e f", "g\th", "ijk"]]


def test_comments_are_not_words() -> None:
    assert texts(parse("ls # rm -rf src\n# all\nls a#b")) == [["ls"], ["ls", "a#b"]]


def test_here_documents_are_text() -> None:
    line = "cat > f <<'EOF' && echo done\nrm -rf src\nEOF\nls"
    script = parse(line)
    assert texts(script) == [["cat"], ["echo", "done"], ["ls"]]
    command = script.pipelines[0].stages[0]
    assert isinstance(command, Command)
    heredoc = command.redirections[1].heredoc
    assert heredoc is not None
    assert heredoc.literal == "rm -rf src\n"


def test_an_unquoted_here_document_keeps_its_substitutions() -> None:
    command = parse("cat <<EOF\n$(date) $HOME\nEOF").pipelines[0].stages[0]
    assert isinstance(command, Command)
    heredoc = command.redirections[0].heredoc
    assert heredoc is not None
    assert [(part.kind, part.text) for part in heredoc.parts if part.kind != "text"] == [
        ("command", "date"),
        ("variable", "HOME"),
    ]


def test_substitutions_nest() -> None:
    command = parse('echo "$(cat "$(ls | head -1)")" `pwd` $((1 + 2)) <(sort a)').pipelines[0].stages[0]
    assert isinstance(command, Command)
    kinds = [part.kind for word in command.words for part in word.parts]
    assert kinds == ["text", "command", "command", "other", "process"]


def test_structures_are_followed() -> None:
    line = "if [ -d a ]; then b; elif c; then d; else e; fi; for x in 1 2; do f; done; while g; do h; done; (i); { j; }"
    assert [words[0] for words in texts(parse(line))] == ["?", "b", "c", "d", "e", "f", "g", "h", "i", "j"]


def test_case_arms_are_followed() -> None:
    assert texts(parse('case "$x" in a|b) one;; *) two;; esac; three')) == [["one"], ["two"], ["three"]]


def test_functions_are_kept_apart_from_calls() -> None:
    assert texts(parse("f() { rm x; }; function g { ls; }; f")) == [
        ["function", "f"],
        ["rm", "x"],
        ["function", "g"],
        ["ls"],
        ["f"],
    ]


def test_braces_expand() -> None:
    assert texts(parse("rm src/{a,b}.{py,pyi} f{1..3}")) == [
        ["rm", "src/a.py", "src/a.pyi", "src/b.py", "src/b.pyi", "f1", "f2", "f3"]
    ]


def test_conditions_never_redirect() -> None:
    command = parse("[[ $a > b && -f c ]] && ls").pipelines[0].stages[0]
    assert isinstance(command, Command)
    assert command.redirections == ()


def test_redirections_are_no_words() -> None:
    command = parse("cmd 2>&1 >out <in >>more &>all a").pipelines[0].stages[0]
    assert isinstance(command, Command)
    assert [shown(word) for word in command.words] == ["cmd", "a"]
    assert [r.operator for r in command.redirections] == [">&", ">", "<", ">>", "&>"]


def test_assignments_stand_before_the_command() -> None:
    command = parse("A=1 B='x y' cmd C=3").pipelines[0].stages[0]
    assert isinstance(command, Command)
    assert [(a.name, a.value.literal) for a in command.assignments] == [("A", "1"), ("B", "x y")]
    assert [shown(word) for word in command.words] == ["cmd", "C=3"]


@settings(max_examples=300, deadline=None)
@given(st.text(alphabet=" \n\t'\"`$(){}[]<>|&;#\\=*?!~abfi1", max_size=60))
def test_broken_lines_never_raise(line: str) -> None:
    parse(line)
    parse(line, fish=True)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.text(alphabet='abc xyz$`"\\;&|#*', min_size=1, max_size=8), min_size=1, max_size=5))
def test_single_quoted_words_come_back(words: list[str]) -> None:
    line = " ".join("'" + word + "'" for word in words)
    assert texts(parse(line)) == [words]
