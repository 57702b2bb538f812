-- Places under a cap that one process may fill without counting again, because many more are free.

CREATE TABLE {schema}.cap_blocks (
    holder        uuid NOT NULL,
    -- The cap, and its value when the block was taken; under another value nobody may use it.
    tenant_id     text NOT NULL,
    provider_slug text NOT NULL,
    max_running   int NOT NULL,
    places        int NOT NULL CHECK (places > 0),
    ends_at       timestamptz NOT NULL
                  CHECK (ends_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'),
    PRIMARY KEY (holder, tenant_id, provider_slug)
);
COMMENT ON TABLE {schema}.cap_blocks IS
    'P9: every count under a cap adds these places; who deletes a row locks it before he counts';
