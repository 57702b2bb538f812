-- R4: who changed what, and when. Rows are added with the change that they tell of, never updated,
-- and deleted by age alone.

CREATE TABLE {schema}.audit (
    id             uuid PRIMARY KEY,
    acted_at       timestamptz NOT NULL
                   CHECK (acted_at BETWEEN '0002-01-01 00:00:00+00' AND '9998-01-01 00:00:00+00'),
    actor_kind     text NOT NULL,
    actor          text NOT NULL,
    key_id         uuid,  -- no foreign key: the row outlives the key
    address        text,  -- whence a request came; for operators only
    action         text NOT NULL,
    tenant_id      text,  -- whose rows it changed; NULL: nobody's, or those of many
    provider_slug  text,
    subject        text,
    connection_ids uuid[] NOT NULL DEFAULT '{}',
    count          int NOT NULL DEFAULT 1 CHECK (count > 0),
    before         jsonb,
    after          jsonb
);
COMMENT ON TABLE {schema}.audit IS
    'R4: what people and keys did; requests may add rows and read them, and change none';

CREATE INDEX audit_time ON {schema}.audit (acted_at, id);
COMMENT ON INDEX {schema}.audit_time IS 'The newest rows first, and pruning the oldest';
CREATE INDEX audit_tenant ON {schema}.audit (tenant_id, acted_at, id) WHERE tenant_id IS NOT NULL;
COMMENT ON INDEX {schema}.audit_tenant IS 'What happened to a tenant, newest first';
CREATE INDEX audit_provider ON {schema}.audit (provider_slug, acted_at, id)
    WHERE provider_slug IS NOT NULL;
COMMENT ON INDEX {schema}.audit_provider IS 'What happened to a provider, newest first';
CREATE INDEX audit_actor ON {schema}.audit (actor, acted_at, id);
COMMENT ON INDEX {schema}.audit_actor IS 'What somebody did, newest first';
CREATE INDEX audit_action ON {schema}.audit (action, acted_at, id);
COMMENT ON INDEX {schema}.audit_action IS 'One kind of action, newest first';
CREATE INDEX audit_connections ON {schema}.audit USING gin (connection_ids);
COMMENT ON INDEX {schema}.audit_connections IS
    'What happened to a connection, also as one of many in a bulk action';
