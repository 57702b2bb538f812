-- Whose request it was, so that row-level security can keep one tenant's answers from another.
-- NULL for an operator's.
ALTER TABLE {schema}.api_requests ADD COLUMN tenant_id text;
UPDATE {schema}.api_requests r SET tenant_id = k.tenant_id
  FROM {schema}.api_keys k WHERE r.scope = k.id::text;
