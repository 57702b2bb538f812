-- An order of signals that survives the promotion of a standby and a restore. Transactions are
-- numbered by the server, and a promoted standby uses the numbers of lost commits again; another
-- cluster begins with numbers of its own. So each signal also keeps when the server that stored it
-- was started. Numbers never go back within a start.

-- Filled in without touching the rows: those that are here count as this start's.
ALTER TABLE {schema}.signals
    ADD COLUMN server_start timestamptz NOT NULL DEFAULT pg_catalog.pg_postmaster_start_time();
ALTER TABLE {schema}.signals
    ADD CONSTRAINT signals_server_start CHECK (
        server_start BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00');

DROP INDEX {schema}.signals_by_transaction;
CREATE INDEX signals_by_transaction ON {schema}.signals (server_start, transaction_id, id);
COMMENT ON INDEX {schema}.signals_by_transaction IS
    'Signals in the order in which they are followed; a page within a large transaction is read alone';

CREATE TABLE {schema}.server_starts (
    started_at  timestamptz PRIMARY KEY,
    number      int NOT NULL,
    -- Signals, and positions of followers, that are older than this table count as this start's.
    holds_older boolean NOT NULL DEFAULT false,
    CONSTRAINT server_starts_number UNIQUE (number)
);
COMMENT ON TABLE {schema}.server_starts IS
    'The starts of database servers that stored signals here, in order: a standby may have been '
    'started before the primary that it replaced, and clocks differ';

INSERT INTO {schema}.server_starts (started_at, number, holds_older)
VALUES (pg_catalog.pg_postmaster_start_time(), 1, true);
