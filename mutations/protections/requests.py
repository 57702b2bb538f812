"""Requests: their size, speed, number and origin."""

from mutations.mutation import Mutation

REQUESTS = (
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
        "tests/api/test_middleware.py::test_who_asks_is_checked_before_the_body_is_read",
    ),
    Mutation(
        "the size of a head that arrives in one piece",
        "only an incomplete one is limited",
        "api/protocol.py",
        (("        if self.their_state is h11.IDLE:\n", "        if False:\n"),),
        "tests/api/test_protocol.py::test_header_bytes_are_counted_when_they_come_at_once",
    ),
    Mutation(
        "the turns of a tenant",
        "it may run any number of requests while others wait",
        "api/fair_queue.py",
        (("return line.brief == 0 or not self._is_shared(line.caller)", "return True"),),
        "tests/api/test_limits.py::test_while_others_ask_too_each_caller_runs_one_by_one",
    ),
    Mutation(
        "the failed logins of an address",
        "keys can be guessed without limit",
        "api/limits.py",
        (("        if wait and _digest(secret) not in self._known:\n", "        if False:\n"),),
        "tests/api/test_limits.py::test_failed_logins_are_slowed_counted_and_logged",
    ),
    Mutation(
        "the origin of a change",
        "pages of other sites can make one",
        "api/middleware.py",
        (("and not _is_own(headers, host)", "and False"),),
        "tests/api/test_access.py::test_no_other_site_changes_anything",
    ),
    Mutation(
        "the stored answer that commits with the change",
        "an idempotency key is forgotten",
        "services/base.py",
        (("            if once is None:\n", "            if True:\n"),),
        "tests/api/test_connections.py::test_a_repeated_request_has_its_effect_once",
    ),
    Mutation(
        "the version of a connection",
        "the second of two editors overwrites the first",
        "services/edits.py",
        (("    if expected is not None and (version", "    if False and (version"),),
        "tests/api/test_connections.py::test_the_second_of_two_editors_is_refused",
    ),
    Mutation(
        "the size of a body",
        "a body without a declared length may have any size",
        "api/middleware.py",
        (("        if size > limit:\n            raise too_large\n", ""),),
        "tests/api/test_middleware.py::test_a_body_that_is_too_large",
    ),
    Mutation(
        "the depth and number of values of a body",
        "a parser builds whatever a document contains",
        "api/middleware.py",
        (("        _check_json(scanner, chunks[-1])\n", ""),),
        "tests/api/test_middleware.py::test_json_that_is_too_deep",
    ),
    Mutation(
        "the time for a body",
        "a client that sends nothing keeps a request open forever",
        "api/middleware.py",
        (("asyncio.timeout(self._timeouts.body_seconds)", "asyncio.timeout(None)"),),
        "tests/api/test_middleware.py::test_a_body_that_never_ends",
    ),
    Mutation(
        "the time for an answer",
        "a request may take any time",
        "api/middleware.py",
        (("asyncio.timeout(self._timeouts.answer_seconds)", "asyncio.timeout(None)"),),
        "tests/api/test_middleware.py::test_an_answer_that_takes_too_long",
    ),
    Mutation(
        "the host names of this server",
        "a page of another site reads this one through a name of its own",
        "api/middleware.py",
        (("if self._hosts is not None and _name_of(host) not in self._hosts:", "if False:"),),
        "tests/api/test_app.py::test_a_name_that_only_leads_here_is_refused",
    ),
    Mutation(
        "the token of a form",
        "another site's page can make a change through a signed-in browser",
        "api/auth.py",
        (
            (
                "    if not hmac.compare_digest(principal.csrf_token.encode(), token.encode()):\n",
                "    if False:\n",
            ),
        ),
        "tests/api/test_access.py::test_a_browser_signs_in_and_out",
    ),
    Mutation(
        "requests through a proxy",
        "without a key they count as requests from this machine",
        "api/auth.py",
        (
            (
                "        if any(name in request.headers for name in FORWARDED):\n",
                "        if False:\n",
            ),
        ),
        "tests/api/test_access.py::test_requests_through_a_proxy_need_a_key",
    ),
    Mutation(
        "the rate of a caller",
        "it may send any number of requests",
        "api/limits.py",
        (("if wait := limiter.take(caller, monotonic()):", "if wait := 0.0:"),),
        "tests/api/test_limits.py::test_a_key_that_asks_too_often_is_told_to_wait",
    ),
    Mutation(
        "the open streams of a caller",
        "it may open any number",
        "api/limits.py",
        (("if self._streams[caller] >= self._most_streams:", "if False:"),),
        "tests/api/test_limits.py::test_a_caller_holds_only_so_many_streams_open",
    ),
    Mutation(
        "the open sockets of an address",
        "one address can take all of them",
        "api/protocol.py",
        ((" or self._by_address[address] >= self._most_per_address:", ":"),),
        "tests/api/test_protocol.py::test_an_address_holds_only_so_many_connections",
    ),
    Mutation(
        "the open sockets of a server",
        "clients can take all descriptors of the process",
        "api/protocol.py",
        (("if self._open >= self._most or", "if"),),
        "tests/api/test_protocol.py::test_the_server_holds_only_so_many_connections",
    ),
    Mutation(
        "the time for a head",
        "a client that sends nothing keeps its socket open forever",
        "api/protocol.py",
        (("        elif self._head_timer is None:\n", "        elif False:\n"),),
        "tests/api/test_protocol.py::test_headers_that_trickle_end_the_connection",
    ),
    Mutation(
        "the time for reading an answer",
        "a client that reads nothing keeps it in memory forever",
        "api/protocol.py",
        (("        if self._read_timer is None:\n", "        if False:\n"),),
        "tests/api/test_protocol.py::test_a_client_that_reads_nothing_is_cut_off",
    ),
)
