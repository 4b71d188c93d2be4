-- One row; `fence` grows with every lease that is taken, `last_event` with every event. Updating it
-- serialises writers of events, so that their numbers are in the order of commits and have no gaps:
-- a reader with a cursor can neither miss nor repeat one.
CREATE TABLE journal (
    id         TEXT NOT NULL,
    fence      BIGINT NOT NULL,
    last_event BIGINT NOT NULL
);
INSERT INTO journal VALUES (substr(md5(gen_random_uuid()::text), 1, 16), 0, 0);

CREATE TABLE plan (
    id          BIGSERIAL PRIMARY KEY,
    kind        TEXT NOT NULL,
    title       TEXT NOT NULL,
    subject     TEXT,
    state       TEXT NOT NULL,
    tasks       BIGINT NOT NULL,
    created_ms  BIGINT NOT NULL DEFAULT (extract(epoch FROM clock_timestamp()) * 1000)::bigint,
    spec        TEXT NOT NULL,
    cancel      TEXT,
    owner       TEXT,
    fence       BIGINT NOT NULL DEFAULT 0,
    -- By the database's clock, the only one that all processes share.
    lease_until TIMESTAMPTZ
);
CREATE UNIQUE INDEX plan_subject ON plan (subject)
    WHERE subject IS NOT NULL AND state IN ('ready', 'running', 'stopping', 'undoing');
CREATE INDEX plan_active ON plan (id) WHERE state IN ('ready', 'running', 'stopping', 'undoing');

-- One row for each commit: the events that it recorded, as a JSON array, and the number of the last.
CREATE TABLE event (
    last   BIGINT PRIMARY KEY,
    plan   BIGINT NOT NULL REFERENCES plan (id),
    at_ms  BIGINT NOT NULL,
    bodies TEXT NOT NULL
);
CREATE INDEX event_plan ON event (plan, last);

CREATE TABLE lock (
    resource TEXT PRIMARY KEY,
    plan     BIGINT NOT NULL REFERENCES plan (id)
);

CREATE FUNCTION guywire_event_notify() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_notify('guywire_event', '');
    RETURN NULL;
END $$;
CREATE TRIGGER event_notify AFTER INSERT ON event FOR EACH STATEMENT EXECUTE FUNCTION guywire_event_notify();
