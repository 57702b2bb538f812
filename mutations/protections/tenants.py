"""Tenants and their keys: what they may see, connect and use."""

from mutations.mutation import Mutation

TENANTS = (
    Mutation(
        "the tenant of a key",
        "a key may name any tenant",
        "api/auth.py",
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
        "tests/api/test_tenants.py::test_no_listing_shows_a_foreign_row_whatever_is_asked",
    ),
    Mutation(
        "the tenant of a job",
        "an id is enough to cancel any tenant's job",
        "api/routes/jobs.py",
        (("jobs.cancel(job_id, tenant_id=principal.tenant_id)", "jobs.cancel(job_id)"),),
        "tests/api/test_tenants.py::test_every_route_answers_a_foreign_id_as_if_it_did_not_exist",
    ),
    Mutation(
        "the scope of a key",
        "every key may do everything",
        "api/auth.py",
        (("        principal.check(self.scope)\n", ""),),
        "tests/api/test_scopes.py::test_a_key_with_a_lower_scope_is_refused_by_every_route",
    ),
    Mutation(
        "the providers of tenants",
        "a local one need not be named in the settings",
        "policy/tenant_providers.py",
        (("    if facts.is_local:\n", "    if False:\n"),),
        "tests/api/test_tenant_providers.py::test_a_local_provider_is_refused_until_it_is_named",
    ),
    Mutation(
        "the providers that cannot be confined",
        "tenants may connect them if the settings name them",
        "policy/tenant_providers.py",
        (("    if facts.cannot_confine is not None:\n", "    if False:\n"),),
        "tests/policy/test_tenant_providers.py::test_what_tenants_may_connect",
    ),
    Mutation(
        "the providers that the settings name",
        "tenants may connect the others too",
        "policy/tenant_providers.py",
        (("return None if provider in named else", "return None if True else"),),
        "tests/policy/test_tenant_providers.py::test_what_tenants_may_connect",
    ),
    Mutation(
        "the providers without a connector here",
        "tenants may connect whatever another worker serves",
        "policy/tenant_providers.py",
        (("    if not facts.is_known:\n", "    if False:\n"),),
        "tests/policy/test_tenant_providers.py::test_what_tenants_may_connect",
    ),
    Mutation(
        "what other workers cannot confine",
        "a tenant's program runs on a host without a sandbox",
        "services/tenant_providers.py",
        (("if slug in elsewhere else None", "if False else None"),),
        "tests/api/test_tenant_providers.py::test_a_living_worker_that_cannot_confine_a_provider_refuses_it_for_all",
    ),
    Mutation(
        "the provider of a connection that is changed",
        "a tenant rewrites the config of one that an operator made",
        "api/tenant_limits.py",
        (
            (
                '    await check_providers(engine, principal, {"provider_slug":'
                " connection.provider_slug})\n",
                "    del connection\n",
            ),
        ),
        "tests/api/test_tenant_providers.py::test_what_a_refused_connector_is_given_cannot_be_changed",
    ),
    Mutation(
        "what only operators may use of git",
        "tenants reach local folders and other protocols",
        "connectors/git/connector.py",
        (
            (
                "if self._own_roots or self._access.local_roots or self._access.schemes:",
                "if False:",
            ),
        ),
        "tests/api/test_tenant_git.py::test_what_is_open_to_operators_stays_closed_to_tenants",
    ),
    Mutation(
        "the routes for operators only",
        "any key may use them",
        "api/auth.py",
        (("if self.is_for_operators and not principal.is_operator:", "if False:"),),
        "tests/api/test_tenants.py::test_every_route_answers_a_foreign_id_as_if_it_did_not_exist",
    ),
    Mutation(
        "the priority of a tenant's jobs",
        "they run before an operator's urgent jobs",
        "api/tenant_limits.py",
        ((" and priority > TENANTS_HIGHEST_PRIORITY:", " and False:"),),
        "tests/api/test_scopes.py::test_a_tenants_key_asks_for_a_priority_of_10_at_most",
    ),
    Mutation(
        "the keys of a deleted tenant",
        "they keep working",
        "services/tenants.py",
        (("        revoked = await self._pool.retrying(revoke)\n", "        revoked = 0\n"),),
        "tests/api/test_keys.py::test_deleting_a_tenant_revokes_its_keys_and_ends_its_sessions",
    ),
    Mutation(
        "the digest of a key",
        "the prefix of a key is enough",
        "services/access.py",
        ((" if is_proved else None", ""),),
        "tests/api/test_access.py::test_a_key_that_is_nearly_right_is_refused",
    ),
    Mutation(
        "the expiry of a key",
        "it keeps working",
        "store/data/keys.py",
        (
            (
                "AND revoked_at IS NULL AND (expires_at IS NULL OR expires_at > $2)",
                "AND revoked_at IS NULL AND $2::timestamptz IS NOT NULL",
            ),
        ),
        "tests/api/test_access.py::test_a_key_expires_on_time",
    ),
    Mutation(
        "the revocation of a key",
        "it keeps working",
        "store/data/keys.py",
        (("WHERE prefix = $1 AND revoked_at IS NULL AND", "WHERE prefix = $1 AND"),),
        "tests/api/test_keys.py::test_a_revoked_key_is_refused_and_listed",
    ),
    Mutation(
        "the sessions of an expired key",
        "browsers that signed in with it stay signed in",
        "store/data/keys.py",
        (("       AND (k.expires_at IS NULL OR k.expires_at > $2)\n", ""),),
        "tests/api/test_access.py::test_a_session_ends_with_its_key_and_with_time",
    ),
    Mutation(
        "the lock while a tenant's connections are counted",
        "two simultaneous requests can both add the last one",
        "store/data/tenants.py",
        (("    await tx.execute(LOCK_USAGE, tenant_id)\n", ""),),
        "tests/api/test_tenant_limits.py::test_two_requests_at_once_cannot_both_take_the_last_place",
    ),
    Mutation(
        "the limit on connections of a tenant",
        "it may have any number",
        "services/new_connections.py",
        (
            (
                "        if await tenants.has_more_connections(tx, tenant_id, at_most):\n",
                "        if False:\n",
            ),
        ),
        "tests/api/test_tenant_limits.py::test_a_tenants_key_makes_only_so_many_connections",
    ),
    Mutation(
        "the limit on bytes that a tenant stores",
        "its connections continue although it stores too much",
        "engine/upkeep/storage_limit.py",
        (
            (
                "for tenant, size in self._bytes.items() if size > self._limit}",
                "for tenant, size in self._bytes.items() if False}",
            ),
        ),
        "tests/api/test_tenant_limits.py::test_a_tenant_that_stores_too_much_is_paused_and_told",
    ),
    Mutation(
        "the role of a request",
        "a service that forgets the tenant shows all tenants' rows",
        "store/pool.py",
        (
            (
                "        if role is not None and self._request_tenant is not None:\n",
                "        if False:\n",
            ),
        ),
        "tests/api/test_row_level_security.py::test_every_route_and_page_runs_as_the_role",
    ),
    Mutation(
        "the rows that a request sees",
        "the policy shows every tenant's rows",
        "store/api_role.py",
        (("WHEN tenant_id THEN true ELSE false END", "WHEN tenant_id THEN true ELSE true END"),),
        "tests/store/test_api_role.py::test_without_a_tenant_nothing_is_seen",
    ),
    Mutation(
        "the rights of a request",
        "it may write signals",
        "store/api_role.py",
        (
            (
                'Table("signals", ("SELECT", "DELETE"))',
                'Table("signals", ("SELECT", "INSERT", "DELETE"))',
            ),
        ),
        "tests/store/test_api_role.py::test_the_role_may_do_nothing_that_requests_do_not",
    ),
    Mutation(
        "the ban on a tenant named `*`",
        "a key for it sees all tenants' rows",
        "services/access.py",
        (("        if tenant_id == EVERY_TENANT:\n", "        if False:\n"),),
        "tests/api/test_keys.py::test_no_tenant_may_have_the_name_that_means_all",
    ),
    Mutation(
        "refusing a role that would see nothing",
        "the engine starts, and schedules nothing",
        "store/api_role.py",
        (
            (
                '    if found["inherits"] and not found["is_above"] and not found["is_citus"]:\n',
                "    if False:\n",
            ),
        ),
        "tests/store/test_api_role.py::test_an_engine_that_would_see_nothing_refuses_to_start",
    ),
)
