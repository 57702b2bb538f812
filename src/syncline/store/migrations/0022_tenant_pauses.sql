-- Tenants whose jobs may not start: a switch that holds for connections added later too.

CREATE TABLE {schema}.tenant_pauses (
    tenant_id      text PRIMARY KEY CHECK (char_length(tenant_id) BETWEEN 1 AND 255),
    paused_at      timestamptz NOT NULL DEFAULT now()
                   CHECK (paused_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'),
    paused_because text CHECK (char_length(paused_because) <= 1000),
    paused_by      text CHECK (char_length(paused_by) <= 255)
);
COMMENT ON TABLE {schema}.tenant_pauses IS
    'Tenants that are paused; a tenant without a row is not';
