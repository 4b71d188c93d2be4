-- One text for SQLite and PostgreSQL. Documents are JSON; columns beside them are what is searched for, joined or
-- must be unique. `rev` counts changes: a write that was decided on an older one does not happen.

-- Numbers that must follow the order of commits: taking one locks the row until the transaction ends, so that
-- a reader that goes by them misses nothing.
CREATE TABLE counter (
    name  TEXT PRIMARY KEY,
    value BIGINT NOT NULL
);
INSERT INTO counter VALUES ('notification', 0);

CREATE TABLE package (
    id      TEXT PRIMARY KEY,
    rev     BIGINT NOT NULL,
    -- Set once the package is onboarded: a descriptor can be onboarded once, and again when it is gone.
    vnfd_id TEXT UNIQUE,
    state   TEXT NOT NULL,
    doc     TEXT NOT NULL
);

CREATE TABLE vim (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    type       TEXT NOT NULL,
    is_default BIGINT NOT NULL,
    doc        TEXT NOT NULL
);
CREATE UNIQUE INDEX vim_default ON vim (is_default) WHERE is_default = 1;

CREATE TABLE instance (
    id           TEXT PRIMARY KEY,
    rev          BIGINT NOT NULL,
    name         TEXT,
    vnfd_id      TEXT NOT NULL,
    package      TEXT NOT NULL REFERENCES package (id),
    provider     TEXT NOT NULL,
    product      TEXT NOT NULL,
    state        TEXT NOT NULL,
    -- What a list shows.
    head         TEXT NOT NULL,
    -- What only a look at the one instance shows.
    body         TEXT
);
CREATE INDEX instance_name ON instance (name, id);
CREATE INDEX instance_vnfd ON instance (vnfd_id, id);
CREATE INDEX instance_package ON instance (package);
CREATE INDEX instance_state ON instance (state, id);
CREATE INDEX instance_product ON instance (provider, product, id);

CREATE TABLE operation (
    id         TEXT PRIMARY KEY,
    rev        BIGINT NOT NULL,
    instance   TEXT NOT NULL,
    type       TEXT NOT NULL,
    state      TEXT NOT NULL,
    started_ms BIGINT NOT NULL,
    entered_ms BIGINT NOT NULL,
    doc        TEXT NOT NULL
);
-- One operation at a time on an instance: whoever comes second is refused by the database.
CREATE UNIQUE INDEX operation_unfinished ON operation (instance)
    WHERE state IN ('STARTING', 'PROCESSING', 'ROLLING_BACK', 'FAILED_TEMP');
CREATE INDEX operation_active ON operation (id) WHERE state IN ('STARTING', 'PROCESSING', 'ROLLING_BACK');
CREATE INDEX operation_instance ON operation (instance, id);

-- Machines that operations have spoken for: two operations that plan at the same time cannot choose the same one.
CREATE TABLE machine (
    infra    TEXT NOT NULL,
    name     TEXT NOT NULL,
    site     TEXT NOT NULL,
    number   BIGINT NOT NULL,
    instance TEXT NOT NULL,
    vnfc     TEXT NOT NULL,
    PRIMARY KEY (infra, name),
    UNIQUE (infra, site, number)
);
CREATE INDEX machine_instance ON machine (instance);

CREATE TABLE subscription (
    id           TEXT PRIMARY KEY,
    api          TEXT NOT NULL,
    doc          TEXT NOT NULL,
    -- Who delivers to it, and until when nobody else does.
    owner        TEXT,
    owner_until  BIGINT,
    -- How the first waiting notification fares.
    failures     BIGINT NOT NULL DEFAULT 0,
    next_ms      BIGINT NOT NULL DEFAULT 0,
    last_error   TEXT,
    last_error_ms BIGINT,
    last_success_ms BIGINT,
    delivered    BIGINT NOT NULL DEFAULT 0,
    dropped      BIGINT NOT NULL DEFAULT 0
);

-- Written in the transaction of the change that it tells of; gone when delivered.
CREATE TABLE notification (
    seq          BIGINT PRIMARY KEY,
    subscription TEXT NOT NULL REFERENCES subscription (id) ON DELETE CASCADE,
    created_ms   BIGINT NOT NULL,
    body         TEXT NOT NULL
);
CREATE INDEX notification_subscription ON notification (subscription, seq);

CREATE TABLE alarm (
    id       TEXT PRIMARY KEY,
    rev      BIGINT NOT NULL,
    instance TEXT NOT NULL,
    key      TEXT NOT NULL,
    severity TEXT NOT NULL,
    cleared  BIGINT NOT NULL,
    doc      TEXT NOT NULL
);
-- The same trouble raises one alarm.
CREATE UNIQUE INDEX alarm_open ON alarm (instance, key) WHERE cleared = 0;
CREATE INDEX alarm_instance ON alarm (instance, id);

-- Who may ask: tokens, OAuth2 clients and certificates. What is secret is kept as a hash.
CREATE TABLE credential (
    id         TEXT PRIMARY KEY,
    name       TEXT NOT NULL UNIQUE,
    kind       TEXT NOT NULL,
    role       TEXT NOT NULL,
    hash       TEXT UNIQUE,
    created_ms BIGINT NOT NULL,
    expires_ms BIGINT
);

-- Short-lived rights: access tokens of OAuth2 clients, sessions of the console.
CREATE TABLE session (
    hash       TEXT PRIMARY KEY,
    credential TEXT NOT NULL REFERENCES credential (id) ON DELETE CASCADE,
    kind       TEXT NOT NULL,
    expires_ms BIGINT NOT NULL
);
CREATE INDEX session_expires ON session (expires_ms);
