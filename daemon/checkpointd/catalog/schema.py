"""The catalog's tables. SQL for SQLite 3.34: no STRICT."""

APPLICATION = 0x636B7074  # "ckpt"
VERSION = 1

DDL = """
CREATE TABLE stat (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE job (name TEXT PRIMARY KEY, last_run INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE counter (agent TEXT, name TEXT, count INTEGER NOT NULL, PRIMARY KEY (agent, name)) WITHOUT ROWID;
CREATE TABLE project (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, kind TEXT NOT NULL, created_at INTEGER NOT NULL,
    paused INTEGER NOT NULL, marks TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE worktree (
    id TEXT PRIMARY KEY, project TEXT NOT NULL, root TEXT NOT NULL, gitdir TEXT,
    first_seen INTEGER NOT NULL, last_seen INTEGER NOT NULL
) WITHOUT ROWID;
CREATE INDEX worktree_root ON worktree (root, last_seen);
CREATE INDEX worktree_project ON worktree (project);
CREATE TABLE line (worktree TEXT PRIMARY KEY, seq INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE checkpoint (
    id TEXT PRIMARY KEY, project TEXT NOT NULL, worktree TEXT NOT NULL, seq INTEGER NOT NULL,
    created_at INTEGER NOT NULL, name TEXT NOT NULL, trigger_name TEXT NOT NULL, feature TEXT,
    agent TEXT, session TEXT, cause TEXT NOT NULL, thread TEXT, commit_id TEXT NOT NULL,
    size INTEGER NOT NULL, pinned INTEGER NOT NULL DEFAULT 0, record BLOB NOT NULL
);
CREATE INDEX checkpoint_line ON checkpoint (worktree, seq);
CREATE INDEX checkpoint_time ON checkpoint (created_at, seq);
CREATE INDEX checkpoint_project ON checkpoint (project, created_at, seq);
CREATE INDEX checkpoint_name ON checkpoint (name);
CREATE INDEX checkpoint_session ON checkpoint (session, created_at, seq);
CREATE INDEX checkpoint_cause ON checkpoint (cause);
CREATE INDEX checkpoint_thread ON checkpoint (project, thread, created_at, seq) WHERE thread IS NOT NULL;
CREATE TABLE mark (checkpoint TEXT, status TEXT, PRIMARY KEY (checkpoint, status)) WITHOUT ROWID;
CREATE TABLE session (
    agent TEXT, id TEXT, project TEXT, worktree TEXT, state TEXT NOT NULL, last_at INTEGER,
    log TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (agent, id)
) WITHOUT ROWID;
CREATE INDEX session_id ON session (id);
CREATE INDEX session_state ON session (state, last_at);
CREATE INDEX session_time ON session (last_at);
CREATE INDEX session_project ON session (project, last_at);
CREATE INDEX session_log ON session (log);
CREATE TABLE log_cursor (
    path TEXT PRIMARY KEY, agent TEXT NOT NULL, device INTEGER NOT NULL, inode INTEGER NOT NULL,
    offset INTEGER NOT NULL, generation INTEGER NOT NULL, tail_hash TEXT NOT NULL, session TEXT, state BLOB NOT NULL
);
"""
