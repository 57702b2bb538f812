-- What the connectors of a process declare, so that processes without them can check connections.

ALTER TABLE {schema}.workers ADD COLUMN declarations jsonb NOT NULL DEFAULT '{}';
