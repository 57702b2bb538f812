"""What comes from providers and goes to people: documents, addresses, secrets."""

from mutations.mutation import Mutation

DOCUMENTS = (
    Mutation(
        "the size of an answer",
        "a provider fills the memory, compressed or not",
        "http/body.py",
        (
            (
                "            if size > limit:\n"
                "                raise _too_large(described, limit)\n"
                "            pieces",
                "            pieces",
            ),
        ),
        "tests/http/test_answers.py::test_a_body_that_grows_when_decompressed_is_refused",
    ),
    Mutation(
        "decompression piece by piece",
        "a few kilobytes become a gigabyte before they are counted",
        "http/body.py",
        (("self._stream.decompress(raw, PIECE)", "self._stream.decompress(raw)"),),
        "tests/http/test_answers.py::test_no_piece_of_a_compressed_body_is_large",
    ),
    Mutation(
        "the number of values of a document",
        "58 kB of gzip become 1.5 GB of lists",
        "json_bounds.py",
        (("        if self.nodes > bounds.nodes:\n", "        if False:\n"),),
        "tests/test_json_bounds.py::test_each_bound_is_found_across_pieces",
    ),
    Mutation(
        "the depth of a document",
        "it is stored, and cannot be read back",
        "json_bounds.py",
        (
            (
                "            if deepest > bounds.depth:\n                raise",
                "            if False:\n                raise",
            ),
        ),
        "tests/test_json_bounds.py::test_each_bound_is_found_across_pieces",
    ),
    Mutation(
        "the digits of a number",
        "a parser takes quadratic time for them",
        "json_bounds.py",
        (("        if len(marks) > limit and", "        if False and"),),
        "tests/test_json_bounds.py::test_each_bound_is_found_across_pieces",
    ),
    Mutation(
        "the length of a string",
        "a parser blocks the interpreter from the first byte to the last",
        "json_bounds.py",
        (("        if longest > self._bounds.string_bytes:\n", "        if False:\n"),),
        "tests/test_json_bounds.py::test_each_bound_is_found_across_pieces",
    ),
    Mutation(
        "large documents off the event loop",
        "parsing one blocks the worker",
        "http/body.py",
        (("        if len(content) <= SMALL_BYTES or", "        if True or"),),
        "tests/security/test_hostile_documents.py::test_a_connector_that_asks_for_json_does_not_hold_the_loop",
    ),
    Mutation(
        "large pages off the event loop",
        "checking one blocks the worker",
        "engine/worker/attempt.py",
        (("if not reader.read_some(MANY_BYTES):", "if not reader.read_some(limits.page_bytes):"),),
        "tests/security/test_hostile_documents.py::test_a_large_page_is_checked_beside_the_loop",
    ),
    Mutation(
        "large pages one at a time",
        "threads that check forty of them starve the event loop",
        "engine/worker/attempt.py",
        (("self._turn = asyncio.Semaphore()", "self._turn = asyncio.Semaphore(1000)"),),
        "tests/engine/worker/test_page_checks.py::test_large_pages_are_checked_one_at_a_time",
    ),
    Mutation(
        "the time limit of a parser",
        "a document occupies its process forever",
        "children/parser_process.py",
        (('    signal.setitimer(signal.ITIMER_REAL, request["seconds"])\n', ""),),
        "tests/security/test_hostile_documents.py::test_a_document_that_never_ends_is_stopped",
    ),
    Mutation(
        "the memory limit of a parser",
        "a document may use any amount",
        "children/parser_process.py",
        (
            (
                "((resource.RLIMIT_AS, memory_bytes), (resource.RLIMIT_CORE, 0))",
                "((resource.RLIMIT_CORE, 0),)",
            ),
        ),
        "tests/security/test_hostile_documents.py::test_a_document_that_needs_too_much_memory_is_refused",
    ),
    Mutation(
        "the environment of a parser",
        "it gets all our variables",
        "children/parsers.py",
        (('        if name in PASSED_ON or name.startswith("LC_")\n', "        if name\n"),),
        "tests/security/test_hostile_documents.py::test_a_parser_knows_nothing_of_our_environment",
    ),
    Mutation(
        "patterns that are linear",
        "a few kilobytes block the interpreter for seconds",
        "redaction.py",
        (('ADDRESS = re.compile(r"://\\S*+")', 'ADDRESS = re.compile(r"://\\S*+\\s")'),),
        "tests/test_patterns.py::test_a_pattern_is_linear",
    ),
    Mutation(
        "the number of messages in an IMAP cursor",
        "a few bytes become millions of messages",
        "connectors/imap/cursor.py",
        (("    if named > MAX_KNOWN_MESSAGES:\n", "    if False:\n"),),
        "tests/connectors/test_imap.py::test_a_cursor_cannot_name_more_than_it_can_fetch",
    ),
    Mutation(
        "our own list of denied addresses",
        "the host of an Azure machine can be reached",
        "http/addresses.py",
        (('        "168.63.129.16/32",  #', "        #"),),
        "tests/http/test_addresses.py::test_special_addresses_are_denied_by_our_own_list",
    ),
    Mutation(
        "IPv4 addresses inside IPv6 addresses",
        "64:ff9b::7f00:1 leads to loopback",
        "http/addresses.py",
        (("        parsed = IPv4Address(int(parsed) & 0xFFFFFFFF)\n", "        return True\n"),),
        "tests/http/test_addresses.py::test_special_addresses_are_denied_by_our_own_list",
    ),
    Mutation(
        "secrets that do not follow a redirect",
        "another origin gets the headers of the request",
        "http/redirects.py",
        (("if (same_origin or name.lower() in HARMLESS_HEADERS)", "if True"),),
        "tests/http/test_answers.py::test_credentials_go_only_to_their_own_origin",
    ),
    Mutation(
        "the origin of credentials",
        "a link in a page sends them anywhere",
        "http/client.py",
        (
            (
                "if not self._authentication or origin_of(request.url) != self._origin:",
                "if not self._authentication:",
            ),
        ),
        "tests/http/test_answers.py::test_credentials_go_only_to_their_own_origin",
    ),
    Mutation(
        "https for credentials",
        "they are sent unencrypted",
        "http/client.py",
        (
            (
                'if request.url.scheme != "https" and not self._environment.allow_private:',
                "if False:",
            ),
        ),
        "tests/http/test_answers.py::test_credentials_are_not_sent_unencrypted",
    ),
    Mutation(
        "the cut at the end of a long text",
        "the first half of a secret at the cut is shown",
        "redaction.py",
        (("        masked = masked[:-margin]\n", "        pass\n"),),
        "tests/test_redaction.py::test_half_a_secret_at_the_end_of_what_is_read_is_not_shown",
    ),
    Mutation(
        "secrets inside base64",
        "a header of basic authentication shows a password",
        "redaction.py",
        (('        *_encoded(secret.encode(errors="replace")),\n', ""),),
        "tests/test_redaction.py::test_base64_of_a_user_and_a_password_is_masked",
    ),
    Mutation(
        "CSV cells that are not formulas",
        "a spreadsheet runs what a provider wrote",
        "cli/exports.py",
        (("if is_formula and cell else cell", "if False else cell"),),
        "tests/cli/test_following.py::test_no_cell_of_a_csv_is_a_formula",
    ),
    Mutation(
        "files that only their owner can read",
        "every user can read the lines that an import rejected",
        "private_files.py",
        (("os.O_EXCL | os.O_CLOEXEC, 0o600)", "os.O_EXCL | os.O_CLOEXEC, 0o644)"),),
        "tests/cli/test_batches.py::test_bad_lines_are_written_down_with_the_reason",
    ),
    Mutation(
        "the ban on memory dumps",
        "another process of the same user reads the keys",
        "memory_dumps.py",
        (("        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)\n", "        pass\n"),),
        "tests/security/test_memory_dumps.py::test_a_command_is_not_dumpable",
    ),
)
