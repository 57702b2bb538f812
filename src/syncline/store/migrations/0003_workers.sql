-- Who works here: one small row a process, refreshed while it lives. No claim reads it.

CREATE TABLE {schema}.workers (
    id         uuid PRIMARY KEY,
    host       text NOT NULL,
    pid        int NOT NULL,
    version    text NOT NULL,
    roles      text[] NOT NULL,
    providers  text[] NOT NULL,
    slots      int NOT NULL,
    busy       int NOT NULL,
    stopping   boolean NOT NULL,
    started_at timestamptz NOT NULL,
    beat_at    timestamptz NOT NULL
) WITH (fillfactor = 20);  -- every beat rewrites the row: room for it in its own page
COMMENT ON TABLE {schema}.workers IS
    'Who works here, on what, and when it was last heard of';
