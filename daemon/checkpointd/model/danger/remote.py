"""What destroys things that no checkpoint of files can hold: databases, clouds, containers, other machines."""

import re
from collections.abc import Sequence
from posixpath import join, relpath

from checkpointd.model.danger.call import Call, Value, options
from checkpointd.model.danger.files import Handler
from checkpointd.model.danger.findings import Danger, outside

_SQL = re.compile(
    r"(?is)\b(?:drop\s+(?:table|database|schema|index|view|materialized|role|user|type|function|sequence|extension|collection|keyspace|column)"
    r"|truncate\b|delete\s+from|update\s+\S+\s+set|alter\s+table\s+.*?\bdrop\b)"
)
_MONGO = re.compile(r"\.(?:drop(?:Database|Index|Indexes)?|deleteMany|deleteOne|remove|findOneAndDelete)\s*\(")
_VERBS = frozenset(
    re.findall(
        r"\S+",
        """
        delete destroy remove rm terminate purge drop erase delete-object delete-objects undeploy uninstall wipe
        unpublish deprovision dissociate delete-stack empty rmi
        """,
    )
)
_DRY = ("dry-run", "dryrun", "n", "noop", "check", "plan")
_OUTSIDE = [outside("deletes")]


def _dry(call: Call) -> bool:
    return any(re.match(r"--(?:dry-?run(?:=(?!false|none)\S*)?|noop|what-?if|help)$", text) for text in call.texts)


def _sql_client(call: Call) -> list[Danger]:
    given = options(
        call.args, "c command e execute h host p port U u username user d dbname f file P D database q query eval"
    )
    names = ("c", "command", "e", "execute", "q", "query", "eval")
    statements = [value.text for name in names for value in given.values.get(name, [])] + [
        o.text for o in given.operands
    ]
    if call.stdin and call.stdin.text:
        statements.append(call.stdin.text)
    text = "\n".join(statements)
    if _SQL.search(text) or _MONGO.search(text):
        return _OUTSIDE
    named = " ".join(value.text for name in ("f", "file") for value in given.values.get(name, []))
    return _OUTSIDE if re.search(r"(?i)drop|reset|clean|wipe|truncate", named) else []


def _drops(call: Call) -> list[Danger]:
    return [] if call.has("--help", "--version", "-?") else _OUTSIDE


def _mysqladmin(call: Call) -> list[Danger]:
    return _OUTSIDE if call.has("drop") else []


def _pg_restore(call: Call) -> list[Danger]:
    given = options(call.args, "d dbname h U p j n t f file")
    return _OUTSIDE if given.has("c", "clean") and not given.has("l", "list", "f") else []


def _redis(call: Call) -> list[Danger]:
    verbs = {text.upper() for text in call.texts}
    return (
        _OUTSIDE if verbs & {"FLUSHALL", "FLUSHDB", "DEL", "UNLINK", "HDEL", "SREM", "ZREM", "LTRIM", "XTRIM"} else []
    )


def _verbs(call: Call) -> list[Danger]:
    """Tools that name what they do: `aws ec2 terminate-instances`, `gcloud sql instances delete`."""
    if _dry(call):
        return []
    words = [value.text for value in options(call.args).operands[:5]]
    for word in words:
        head = re.split(r"[-:]", word)[0]
        if (
            word in _VERBS
            or head in ("delete", "terminate", "purge", "destroy", "deregister", "release")
            or word.endswith((":delete", ":destroy", ":remove", ":reset"))
        ):
            return _OUTSIDE
    return []


def _aws(call: Call) -> list[Danger]:
    words = [value.text for value in options(call.args, "profile region output endpoint-url").operands]
    if _dry(call):
        return []
    if words[:1] == ["s3"] and len(words) > 1:
        if words[1] in ("rm", "rb", "mv"):
            return _OUTSIDE
        return _OUTSIDE if words[1] == "sync" and call.has("--delete") else []
    return _verbs(call)


def _gsutil(call: Call) -> list[Danger]:
    words = [value.text for value in options(call.args).operands]
    if words[:1] == ["rsync"]:
        return _OUTSIDE if call.has("-d") and not call.has("-n") else []
    return _OUTSIDE if words[:1] in (["rm"], ["rb"]) else []


def _rclone(call: Call) -> list[Danger]:
    words = [value.text for value in options(call.args).operands]
    return (
        _OUTSIDE
        if words[:1] in (["purge"], ["delete"], ["deletefile"], ["sync"], ["rmdirs"]) and not _dry(call)
        else []
    )


def _gh(call: Call) -> list[Danger]:
    given = options(call.args, "X method R repo")
    if any(value.text.upper() == "DELETE" for value in given.values.get("X", []) + given.values.get("method", [])):
        return _OUTSIDE
    if given.has("delete-branch") or (given.operands[:2] and given.operands[0].text == "pr" and given.has("d")):
        return [outside("history")]
    return _verbs(call)


def _terraform(call: Call) -> list[Danger]:
    words = [text for text in call.texts if not text.startswith("-chdir")]
    if call.has("-help", "--help"):
        return []
    if words[:1] == ["destroy"] or (words[:1] == ["apply"] and call.has("-destroy", "--destroy")):
        return _OUTSIDE
    return _OUTSIDE if words[:2] in (["state", "rm"], ["workspace", "delete"]) else []


def _kubectl(call: Call) -> list[Danger]:
    given = options(call.args, "n namespace f filename l selector context kubeconfig c container o output")
    if _dry(call) or not given.operands:
        return []
    action = given.operands[0].text
    if action == "exec":
        return _elsewhere(
            call, list(call.args[call.texts.index("--") + 1 :] if "--" in call.texts else given.operands[2:])
        )
    if action == "replace" and given.has("force"):
        return _OUTSIDE
    return _OUTSIDE if action in ("delete", "drain") else []


def _ssh(call: Call) -> list[Danger]:
    given = options(call.args, "i p l o F J L R D b c e m S W w E I O Q", stop=True)
    return _elsewhere(call, given.operands[1:])


def _elsewhere(call: Call, words: Sequence[Value]) -> list[Danger]:
    """A command line that runs on another machine or in a container: what it destroys, no file checkpoint holds."""
    if not words:
        source = call.stdin.text if call.stdin and call.stdin.text else ""
    else:
        source = words[0].text if len(words) == 1 else " ".join(_requoted(word.text) for word in words)
    found = [finding for finding in call.shell(source) if finding.label in ("destroys", "outside")]
    effects = tuple(dict.fromkeys(effect for finding in found for effect in finding.effects if effect != "leaves-tree"))
    return [outside(*effects)] if found else []


def _requoted(text: str) -> str:
    return text if re.fullmatch(r"[^\s'\"$`;&|<>()\\]+", text) else "'" + text.replace("'", "'\\''") + "'"


def _docker(call: Call) -> list[Danger]:
    given = options(
        call.args, "H host context l log-level f file p project-name profile env-file project-directory", stop=True
    )
    words = given.operands
    if call.name.endswith("-compose"):
        words = [Value("compose"), *words]
    if words and words[0].text == "compose":
        return _compose(call, words[1:])
    if not words:
        return []
    action, rest = words[0].text, words[1:]
    if action in ("container", "volume", "system", "image", "network", "builder", "context") and rest:
        verb = rest[0].text
        if action == "container" and verb in ("exec", "run"):
            action, rest = verb, rest[1:]
        elif action in ("volume", "container") and verb in ("rm", "remove", "prune"):
            return _OUTSIDE
        else:
            return _OUTSIDE if action == "system" and verb == "prune" else []
    if action == "rm":
        return _OUTSIDE
    if action == "exec":
        return _elsewhere(call, options(rest, "e u w env user workdir env-file detach-keys", stop=True).operands[1:])
    return _docker_run(call, rest) if action == "run" else []


def _compose(call: Call, words: Sequence[Value]) -> list[Danger]:
    given = options(words, "f file p project-name profile env-file", stop=True)
    if not given.operands:
        return []
    action, rest = given.operands[0].text, given.operands[1:]
    if action == "exec":
        return _elsewhere(call, options(rest, "e u w env user workdir index", stop=True).operands[1:])
    flags = options(rest, "t timeout").flags
    return _OUTSIDE if action in ("down", "rm") and flags & {"v", "volumes"} else []


_RUN_VALUED = (
    "v volume w workdir e env u user name network p publish mount entrypoint h hostname l label m memory cpus platform"
    " env-file add-host cap-add cap-drop device dns gpus ip ipc link log-driver log-opt pid pull restart runtime"
    " security-opt shm-size stop-signal tmpfs ulimit volumes-from"
)


def _docker_run(call: Call, words: Sequence[Value]) -> list[Danger]:
    """Files of the project that are mounted into the container are the project's files."""
    given = options(words, _RUN_VALUED, stop=True)
    if len(given.operands) < 2:
        return []
    mounts = [value.text.split(":") for value in given.values.get("v", []) + given.values.get("volume", [])]
    found = _elsewhere(call, given.operands[1:])
    if not found:
        return []
    own = [m for m in mounts if len(m) > 1 and (m[0].startswith((".", "/", "~")) or "\0" in m[0]) and "ro" not in m[2:]]
    if not own:
        return []
    workdir = (given.values.get("w") or given.values.get("workdir") or [Value("/")])[-1].text
    inner = given.operands[1:]
    source = inner[-1].text if len(inner) > 2 and inner[1].text.startswith("-") and "c" in inner[1].text else None
    prefix = relpath(workdir, own[0][1]) if workdir.startswith(own[0][1].rstrip("/")) else None
    line = source if source is not None else " ".join(_requoted(word.text) for word in inner)
    line = line.replace(own[0][1].rstrip("/") + "/", "./")
    return call.shell(f"cd {_requoted(join('.', prefix))} && {line}") if prefix is not None else call.shell(line)


_MANAGED = re.compile(
    r"(?:^|[ :])(?:db:(?:drop|reset|purge|setup|wipe|schema:load|migrate:reset|seed:replant)\S*|migrate:(?:fresh"
    r"|refresh|reset|rollback)|db:wipe"
    r"|ecto\.(?:drop|reset)|database (?:drop|reset)|schema:drop|migrate reset|migrate:undo\S*|db reset|migration:revert"
    r"|reset_db|flush|sqlflush|db push (?:.* )?--(?:force-reset|accept-data-loss)|database reset|downgrade \S+"
    r"|migrate \S+ zero)(?=$|\s)"
)


def _database_task(call: Call) -> list[Danger]:
    """Framework commands that empty a database: `manage.py flush`, `prisma migrate reset`, `rails db:drop`."""
    if call.has("--help", "-h") or _dry(call):
        return []
    return _OUTSIDE if _MANAGED.search(" ".join(call.texts)) else []


def is_database_task(call: Call) -> bool:
    return bool(_database_task(call))


def _subcommand(*wanted: str) -> Handler:
    """A tool whose first operand says that something is destroyed."""

    def judge(call: Call) -> list[Danger]:
        words = [value.text for value in options(call.args).operands]
        return _OUTSIDE if words[:1] and words[0] in wanted and not _dry(call) else []

    return judge


_SQL_CLIENTS = (
    "psql", "mysql", "mariadb", "mongosh", "mongo", "clickhouse-client", "cockroach", "sqlcmd", "bq", "cqlsh",
    "snowsql",
    "usql", "pgcli", "mycli", "trino", "influx",
)  # fmt: skip
_CLOUDS = (
    "gcloud", "az", "doctl", "heroku", "fly", "flyctl", "vercel", "netlify", "wrangler", "firebase", "hcloud",
    "linode-cli",
    "oc", "eksctl", "rabbitmqadmin", "ibmcloud", "scw", "railway", "render", "multipass", "lxc", "incus", "minikube",
    "kind",
    "k3d", "vault", "consul", "cf", "s3cmd", "mc", "azcopy", "nomad", "kafka-topics", "kafka-topics.sh",
)  # fmt: skip
_FRAMEWORKS = (
    "prisma", "alembic", "rails", "artisan", "mix", "knex", "sequelize", "sequelize-cli", "diesel", "sqlx", "typeorm",
    "supabase", "django-admin", "flask", "drizzle-kit", "dotnet-ef", "ef",
)  # fmt: skip

REMOTE: dict[str, Handler] = {
    **dict.fromkeys(_SQL_CLIENTS, _sql_client),
    "dropdb": _drops, "dropuser": _drops, "mysqladmin": _mysqladmin, "pg_restore": _pg_restore, "redis-cli": _redis,
    "valkey-cli": _redis, "aws": _aws, "gsutil": _gsutil, "rclone": _rclone, "gh": _gh, "glab": _gh,
    **dict.fromkeys(_CLOUDS, _verbs),
    "terraform": _terraform, "tofu": _terraform, "terragrunt": _terraform, "kubectl": _kubectl,
    "helm": _subcommand("uninstall", "delete", "del", "un"), "pulumi": _subcommand("destroy"),
    "cdk": _subcommand("destroy"),
    "serverless": _subcommand("remove"), "sls": _subcommand("remove"), "vagrant": _subcommand("destroy"),
    "etcdctl": _subcommand("del"), "crontab": lambda call: _OUTSIDE if call.has("-r") else [],
    "ssh": _ssh, "docker": _docker, "podman": _docker, "nerdctl": _docker, "docker-compose": _docker,
    "podman-compose": _docker, "borg": _subcommand("delete", "prune"), "restic": _subcommand("forget", "prune"),
    **dict.fromkeys(_FRAMEWORKS, _database_task),
    "mkfs": _drops, "mkfs.ext4": _drops, "wipefs": _drops, "fdisk": lambda call: [],
    "npm-unpublish": _drops, "lvremove": _drops, "zfs": _subcommand("destroy", "rollback"),
    "btrfs": lambda call: _OUTSIDE if call.texts[:2] == ["subvolume", "delete"] else [],
}  # fmt: skip
