-- One row; `fence` grows with every lease that is taken.
CREATE TABLE journal (
    id    TEXT NOT NULL,
    fence INTEGER NOT NULL
) STRICT;
INSERT INTO journal VALUES (lower(hex(randomblob(8))), 0);

CREATE TABLE plan (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    kind        TEXT NOT NULL,
    title       TEXT NOT NULL,
    subject     TEXT,
    state       TEXT NOT NULL,
    tasks       INTEGER NOT NULL,
    created_ms  INTEGER NOT NULL,
    spec        TEXT NOT NULL,
    cancel      TEXT,
    owner       TEXT,
    fence       INTEGER NOT NULL DEFAULT 0,
    -- The lease in milliseconds of the host's boot clock, which never jumps, and the boot it belongs to.
    lease_boot  TEXT,
    lease_until INTEGER
) STRICT;
CREATE UNIQUE INDEX plan_subject ON plan (subject)
    WHERE subject IS NOT NULL AND state IN ('ready', 'running', 'stopping', 'undoing');

-- The ordered stream, one row for each commit: the events that it recorded, as a JSON array, and the number
-- of the last of them. Rows are never deleted and there is one writer at a time, so numbers are in the
-- order of commits and without gaps.
CREATE TABLE event (
    last   INTEGER PRIMARY KEY,
    plan   INTEGER NOT NULL REFERENCES plan (id),
    at_ms  INTEGER NOT NULL,
    bodies TEXT NOT NULL
) STRICT;
CREATE INDEX event_plan ON event (plan, last);

CREATE TABLE lock (
    resource TEXT PRIMARY KEY,
    plan     INTEGER NOT NULL REFERENCES plan (id)
) STRICT, WITHOUT ROWID;
