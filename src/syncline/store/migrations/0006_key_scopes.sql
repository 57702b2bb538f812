-- What a key may do, when it was last used, and which providers a worker cannot confine.

-- Keys from before this migration could do everything, and go on doing so.
ALTER TABLE {schema}.api_keys
    ADD COLUMN scope text NOT NULL DEFAULT 'admin',
    ADD COLUMN last_used_at timestamptz;
ALTER TABLE {schema}.api_keys
    ADD CONSTRAINT api_keys_scope CHECK (scope IN ('read', 'operate', 'admin'));
COMMENT ON CONSTRAINT api_keys_scope ON {schema}.api_keys IS
    'What a key may do; each scope includes the ones before it';

ALTER TABLE {schema}.workers ADD COLUMN not_for_tenants text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN {schema}.workers.not_for_tenants IS
    'Providers that this process cannot confine, which tenants'' keys may therefore not connect';
