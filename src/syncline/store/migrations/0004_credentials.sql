-- What connections sign in with: ciphertext alone, in a table of its own, so that the rows that
-- every tick and claim reads stay small.

CREATE TABLE {schema}.credentials (
    connection_id  uuid PRIMARY KEY,
    tenant_id      text NOT NULL,
    key_id         text NOT NULL,
    sealed         bytea NOT NULL,
    version        bigint NOT NULL DEFAULT 1,
    renewing       uuid,
    renewing_until timestamptz,
    updated_at     timestamptz NOT NULL DEFAULT now(),

    CONSTRAINT credentials_connection FOREIGN KEY (tenant_id, connection_id)
        REFERENCES {schema}.connections (tenant_id, id) ON DELETE CASCADE
);
COMMENT ON TABLE {schema}.credentials IS
    'What connections sign in with, encrypted; the key is never in the database';

CREATE INDEX credentials_key ON {schema}.credentials (key_id, connection_id);
COMMENT ON INDEX {schema}.credentials_key IS
    'A rotation reads what is still under another key, not what exists';

-- Tells a claim whether there is anything to read, without reading it.
ALTER TABLE {schema}.connections ADD COLUMN has_credentials boolean NOT NULL DEFAULT false;
