-- What tenants have stored, where api.max_stored_bytes_per_tenant asks for it to be measured. A
-- request that counts its tenant's connections locks the row, so that two cannot both be the last.
CREATE TABLE {schema}.tenant_usage (
    tenant_id    text PRIMARY KEY CHECK (char_length(tenant_id) BETWEEN 1 AND 255),
    stored_bytes bigint NOT NULL DEFAULT 0 CHECK (stored_bytes >= 0),
    measured_at  timestamptz
);
