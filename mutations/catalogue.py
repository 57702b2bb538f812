"""The protections that matter, and how each is switched off in a copy of the source."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutation:
    """A protection, the text that stands for it, and the tests that should miss it."""

    protection: str
    without_it: str
    file: str
    changes: tuple[tuple[str, str], ...]
    tests: tuple[str, ...]


MUTATIONS = (
    Mutation(
        "the fence",
        "a settle does not present its lease",
        "store/jobs.py",
        (
            (
                "WHERE j.id = ANY (ARRAY[closing.id]) AND j.lease_token IS NOT DISTINCT FROM"
                " closing.token\n",
                "WHERE j.id = ANY (ARRAY[closing.id])\n",
            ),
        ),
        ("tests/store/test_settle_races.py", "tests/scenarios/test_leases.py"),
    ),
    Mutation(
        "the fence of an empty run",
        "it closes its job without presenting its lease",
        "store/jobs.py",
        (("AND j.lease_token IS NOT DISTINCT FROM closing.token AND j.again", "AND j.again"),),
        ("tests/engine/test_empty_runs.py",),
    ),
    Mutation(
        "the mark of an empty run",
        "it closes its job without queueing the one more that was asked for",
        "store/jobs.py",
        (("FROM closing.token AND j.again_priority IS NULL", "FROM closing.token"),),
        ("tests/engine/test_empty_runs.py",),
    ),
    Mutation(
        "the dedupe key",
        "signals are stored without it",
        "store/signals.py",
        (
            (
                "page.kind, page.occurred_at, page.payload, page.dedupe_key\n",
                "page.kind, page.occurred_at, page.payload, NULL\n",
            ),
        ),
        ("tests/engine/test_settle_rules.py", "tests/scenarios/test_settling.py"),
    ),
    Mutation(
        "the single transaction",
        "signals and cursor follow in a second one",
        "engine/settlement.py",
        (
            (
                "            await self._settle_in(tx, group, lock_jobs=lock_jobs)\n",
                "            await self._settle_in(tx, group, lock_jobs=lock_jobs)\n"
                "        async with self._pool.transaction() as tx:\n"
                "            held = [one for one in group if not one.is_fenced]\n"
                "            await self._store_pages(tx, held, await self._clock.now(tx))\n",
            ),
            ("        await self._store_pages(tx, held, now)\n", ""),
        ),
        ("tests/engine/test_settle_rules.py",),
    ),
    Mutation(
        "the reaper",
        "it finds nothing",
        "store/claims.py",
        (
            (
                "AND coalesce(lease_expires_at <= $1, coalesce(started_at, scheduled_at) <= $2)",
                "AND coalesce(lease_expires_at <= $1, coalesce(started_at, scheduled_at) <= $2)"
                " AND false",
            ),
        ),
        ("tests/scenarios/test_leases.py", "tests/engine/test_lease_rules.py"),
    ),
    Mutation(
        "key-wise metadata writes",
        "a new cursor replaces all of `metadata.sync`",
        "store/connections.py",
        (
            (
                "{schema}.object_or_empty(c.metadata -> 'sync')),\n"
                "               '{sync,cursor}', page.cursor)",
                "'{}'),\n               '{sync,cursor}', page.cursor)",
            ),
        ),
        ("tests/scenarios/test_metadata.py", "tests/engine/test_metadata_rules.py"),
    ),
    Mutation(
        "the database's clock",
        "each host uses its own",
        "clock.py",
        (
            (
                "        return await tx.database_time()\n",
                "        return datetime.now(UTC)  # noqa: ARG002\n",
            ),
            ("        return None\n", "        return datetime.now(UTC)\n"),
        ),
        ("tests/simulation/test_one_clock.py", "tests/engine/test_time_rules.py"),
    ),
    Mutation(
        "the lock order",
        "a settle locks its jobs before their connections",
        "engine/settlement.py",
        (
            (
                "        locked, held_elsewhere = await connections.lock_free(\n"
                "            tx, [one.claim.connection_id for one in group]\n"
                "        )\n",
                '        mine = "SELECT FROM {schema}.sync_jobs WHERE id = ANY ($1) FOR UPDATE"\n'
                "        await tx.fetch(mine, [one.claim.id for one in group])\n"
                "        ids = [one.claim.connection_id for one in group]\n"
                "        locked, held_elsewhere = await connections.lock(tx, ids), set()\n",
            ),
        ),
        ("tests/store/test_settle_races.py", "tests/store/test_lock_order.py"),
    ),
    Mutation(
        "the guard",
        "the tick inserts jobs without minding it",
        "store/jobs.py",
        (
            (
                "ON CONFLICT (connection_id, job_type)"
                " WHERE status IN ('queued', 'running') DO NOTHING",
                "",
            ),
        ),
        ("tests/store/test_scheduler_races.py", "tests/scenarios/test_guard.py"),
    ),
    Mutation(
        "single flight",
        "the index that enforces it is not unique",
        "store/migrations/0001_initial.sql",
        (
            (
                "CREATE UNIQUE INDEX sync_jobs_single_flight",
                "CREATE INDEX sync_jobs_single_flight",
            ),
        ),
        ("tests/store/test_claim_races.py", "tests/scenarios/test_claiming.py"),
    ),
    Mutation(
        "the lease in a renewal",
        "a worker renews whatever it once held",
        "store/claims.py",
        (
            (
                "WHERE id = ANY ($1::uuid[]) AND lease_token = ANY ($2::uuid[])\n           AND",
                "WHERE id = ANY ($1::uuid[]) AND $2::uuid[] IS NOT NULL\n           AND",
            ),
            (
                "WHERE id = ANY ($1::uuid[]) AND lease_token = ANY ($2::uuid[])\n       AND",
                "WHERE id = ANY ($1::uuid[])\n       AND",
            ),
        ),
        ("tests/scenarios/test_leases.py", "tests/engine/test_lease_rules.py"),
    ),
    Mutation(
        "the lease of a streamed page",
        "a worker stores pages of a job that it no longer holds",
        "store/jobs.py",
        (
            (
                "WHERE j.id = ANY (ARRAY[page.id]) AND j.lease_token IS NOT DISTINCT FROM"
                " page.token",
                "WHERE j.id = page.id AND page.token IS NOT NULL",
            ),
        ),
        ("tests/store/test_stream_races.py", "tests/engine/test_stream_rules.py"),
    ),
    Mutation(
        "the cursor of a streamed page on its job",
        "a job that died in mid-stream begins where it first began",
        "store/jobs.py",
        (("SET cursor = coalesce(page.cursor, j.cursor),", "SET cursor = j.cursor,"),),
        ("tests/engine/test_stream_rules.py",),
    ),
    Mutation(
        "locks that a settle does not wait for",
        "a few dozen held rows stop a worker",
        "store/connections.py",
        (("FOR NO KEY UPDATE SKIP LOCKED", "FOR NO KEY UPDATE"),),
        ("tests/engine/test_standstills.py",),
    ),
    Mutation(
        "parts of a group that takes too long",
        "it is repeated whole for ever",
        "engine/lanes.py",
        (("(lies_in_rows(error) or is_timeout(error) or must_end)", "lies_in_rows(error)"),),
        ("tests/engine/test_standstills.py",),
    ),
    Mutation(
        "statements of bounded size",
        "a page of many bytes is sent at once",
        "store/signals.py",
        (("if index > first and total + size > STATEMENT_BYTES:", "if False:"),),
        ("tests/engine/test_standstills.py",),
    ),
    Mutation(
        "refusals that pass",
        "a login that is refused throws a finished page away",
        "store/pool.py",
        (('"28": ', '"28XXX": '),),
        ("tests/engine/test_standstills.py",),
    ),
    Mutation(
        "pages on top of pages",
        "a stream goes on past pages that a failover has lost",
        "store/jobs.py",
        (("AND j.committed_pages = page.pages_before", ""),),
        ("tests/engine/test_lost_commits.py",),
    ),
    Mutation(
        "a cursor that somebody moved",
        "a run overwrites the cursor that a person set meanwhile",
        "store/connections.py",
        (("OR (c.metadata #> '{sync,cursor}') IS NOT DISTINCT FROM page.replaces)", "OR true)"),),
        ("tests/engine/test_lost_commits.py",),
    ),
    Mutation(
        "a streamed page that is repeated",
        "a page whose answer was lost is stored twice",
        "store/jobs.py",
        (("AND j.committed_pages = page.pages_before", ""),),
        ("tests/store/test_stream_races.py",),
    ),
    Mutation(
        "an orderly release",
        "a job that was interrupted counts as failed",
        "engine/settlement.py",
        (
            (
                "            closing.lapses = claim.lapses\n",
                "            closing.lapses = claim.lapses\n            closing.attempts += 1\n",
            ),
        ),
        ("tests/engine/test_release.py", "tests/scenarios/test_shutdown.py"),
    ),
    Mutation(
        "the horizon of a follower",
        "it reads up to what is committed, whoever still runs",
        "store/following.py",
        (
            (
                "pg_snapshot_xmin(pg_catalog.pg_current_snapshot())",
                "pg_snapshot_xmax(pg_catalog.pg_current_snapshot())",
            ),
        ),
        ("tests/store/test_following.py",),
    ),
    Mutation(
        "the order of a follower",
        "transactions are sorted as texts",
        "store/following.py",
        (("ORDER BY s.server_start, s.transaction_id, s", "ORDER BY s.transaction_id::text, s"),),
        ("tests/store/test_following.py",),
    ),
    Mutation(
        "the start of a server that a follower has not read",
        "transactions count as read by their numbers, though a promoted standby uses them again",
        "store/following.py",
        (("after if place == 0 else (0, FIRST_ID),", "after,"),),
        ("tests/store/test_following_histories.py",),
    ),
    Mutation(
        "the start of a server that has ended",
        "what it stored is held back while its numbers lie ahead of those of the server of today",
        "store/following.py",
        (("below if place == len(starts) - 1 else ALL_TRANSACTIONS,", "below,"),),
        ("tests/store/test_following_histories.py",),
    ),
    Mutation(
        "the tenant of a key",
        "a key may name any tenant",
        "api/access.py",
        (
            (
                "if self.tenant_id is not None and tenant_id not in (None, self.tenant_id):",
                "if False:",
            ),
            (
                "return self.tenant_id if self.tenant_id is not None else tenant_id",
                "return tenant_id or self.tenant_id",
            ),
        ),
        ("tests/api/test_tenants.py",),
    ),
    Mutation(
        "the tenant of a job",
        "an id is enough to cancel anybody's",
        "api/routes/jobs.py",
        (("jobs.cancel(job_id, tenant_id=person.tenant_id)", "jobs.cancel(job_id)"),),
        ("tests/api/test_tenants.py",),
    ),
    Mutation(
        "the scope of a key",
        "every key may do everything",
        "api/access.py",
        (("        person.check(self.scope)\n", ""),),
        ("tests/api/test_scopes.py",),
    ),
    Mutation(
        "the providers of tenants",
        "a local one needs no name in the settings",
        "policy/tenant_providers.py",
        (("    if facts.is_local:\n", "    if False:\n"),),
        ("tests/api/test_tenant_providers.py",),
    ),
    Mutation(
        "the keys of a deleted tenant",
        "they go on working",
        "engine/tenants.py",
        (("        revoked = await self._pool.retrying(revoke)\n", "        revoked = 0\n"),),
        ("tests/api/test_keys.py",),
    ),
    Mutation(
        "the proof of a key",
        "what finds a key is enough",
        "engine/access.py",
        ((" if is_proved else None", ""),),
        ("tests/api/test_access.py",),
    ),
    Mutation(
        "the origin of a change",
        "pages of other sites may ask for one",
        "api/middleware.py",
        (("and not _is_own(headers, host)", "and False"),),
        ("tests/api/test_access.py",),
    ),
    Mutation(
        "the order of the checks of a request",
        "a stranger's body is read",
        "api/middleware.py",
        (
            (
                "            caller = await self._identify(Request(scope))\n"
                "            body = await self._read_body(scope, receive)\n",
                "            body = await self._read_body(scope, receive)\n"
                "            caller = await self._identify(Request(scope))\n",
            ),
        ),
        ("tests/api/test_middleware.py",),
    ),
    Mutation(
        "the size of a head that comes at once",
        "only one that is incomplete is bounded",
        "api/protocol.py",
        (("        if self.their_state is h11.IDLE:\n", "        if False:\n"),),
        ("tests/api/test_protocol.py",),
    ),
    Mutation(
        "the turns of a tenant",
        "it runs as many requests as it likes beside others",
        "api/fair_queue.py",
        (("return line.brief == 0 or not self._is_shared(line.caller)", "return True"),),
        ("tests/api/test_limits.py",),
    ),
    Mutation(
        "the failed logins of an address",
        "keys may be tried for ever",
        "api/limits.py",
        (("        if wait and _digest(secret) not in self._known:\n", "        if False:\n"),),
        ("tests/api/test_limits.py",),
    ),
    Mutation(
        "the lock of those who count connections",
        "two at once are both the last",
        "store/tenant_usage.py",
        (("    await tx.execute(LOCK, tenant_id)\n", ""),),
        ("tests/api/test_tenant_limits.py",),
    ),
    Mutation(
        "the answer that commits with its effect",
        "an idempotency key is forgotten",
        "engine/desk.py",
        (("            if once is None:\n", "            if True:\n"),),
        ("tests/api/test_connections.py",),
    ),
    Mutation(
        "the version of a connection",
        "the second of two editors overwrites the first",
        "engine/connections.py",
        (("    if present != expected:\n", "    if False:\n"),),
        ("tests/api/test_connections.py",),
    ),
    Mutation(
        "the addresses of foreign programs",
        "their proxy leads anywhere",
        "http/transport.py",
        (
            (
                "if not environment.allow_private and not environment.is_allowed(address):",
                "if False:",
            ),
        ),
        ("tests/http_client/test_egress_proxy.py",),
    ),
    Mutation(
        "the files of foreign programs",
        "what they are shown they may change",
        "children/sandbox_launcher.py",
        (
            (
                "        attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV\n",
                "        attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV\n",
            ),
        ),
        ("tests/foreign/test_sandbox.py",),
    ),
    Mutation(
        "the rights of foreign programs",
        "they keep their capabilities",
        "children/sandbox_launcher.py",
        (("        give_up_rights(is_root)\n", ""),),
        ("tests/foreign/test_sandbox.py",),
    ),
)
