"""Programs that we start: git, and third-party ones."""

from mutations.mutation import Mutation

PROGRAMS = (
    Mutation(
        "the form of an address for git",
        "text after a valid address is passed to git",
        "connectors/git/origin.py",
        (("found = URL.fullmatch(url)", "found = URL.match(url)"),),
        "tests/connectors/test_git_origin.py::test_a_url_must_be_a_scheme_a_host_and_a_path",
    ),
    Mutation(
        "the usual form of an IP address for git",
        "programs may read another host from it than we do",
        "connectors/git/origin.py",
        ((" and not _is_literal(host):\n        raise", " and False:\n        raise"),),
        "tests/connectors/test_git_origin.py::test_a_url_must_be_a_scheme_a_host_and_a_path",
    ),
    Mutation(
        "https for git",
        "credentials and commits are sent unencrypted",
        "connectors/git/origin.py",
        (('    if scheme == "http" and not allow_private:\n', "    if False:\n"),),
        "tests/connectors/test_git_origin.py::test_only_https_is_allowed_by_default",
    ),
    Mutation(
        "the protocols of git that an operator names",
        "ssh:// and git:// are open to everybody",
        "connectors/git/origin.py",
        (
            (
                '    if scheme in ("git", "ssh") and scheme not in access.schemes:\n',
                "    if False:\n",
            ),
        ),
        "tests/connectors/test_git_origin.py::test_only_https_is_allowed_by_default",
    ),
    Mutation(
        "the home folders of a server's users",
        "git expands ~ in a path",
        "connectors/git/origin.py",
        (('    if scheme in ("git", "ssh") and "~" in address.path:\n', "    if False:\n"),),
        "tests/connectors/test_git_origin.py::test_ssh_is_refused_if_it_cannot_be_pinned_to_its_host",
    ),
    Mutation(
        "the ports of git",
        "it can talk to other services",
        "connectors/git/origin.py",
        (("if not allow_private and address.port not in usual and", "if False and"),),
        "tests/connectors/test_git_origin.py::test_only_https_is_allowed_by_default",
    ),
    Mutation(
        "the addresses of git",
        "it reaches this host and its network",
        "connectors/git/origin.py",
        (
            (
                "return await checked_addresses(environment, ",
                "return await (environment.resolve or checked_addresses)(",
            ),
        ),
        "tests/connectors/test_git_origin.py::test_addresses_that_are_not_public_are_refused_by_default",
    ),
    Mutation(
        "the address that git is pinned to",
        "the name may resolve elsewhere after the check",
        "connectors/git/origin.py",
        (
            (
                'return (("http.curloptResolve", f"{address.host}:{address.port}:{addresses}"),)',
                "return () if addresses else ()",
            ),
        ),
        "tests/connectors/test_git_origin.py::test_https_is_pinned_to_the_addresses_that_were_checked",
    ),
    Mutation(
        "redirects that git does not follow",
        "a server can send it anywhere",
        "connectors/git/program.py",
        (('("http.followRedirects", "false")', '("http.followRedirects", "true")'),),
        "tests/connectors/test_git_origin.py::test_redirects_are_not_followed",
    ),
    Mutation(
        "the protocols that a repository may name",
        "git runs the program of an ext:: address",
        "connectors/git/program.py",
        (
            (
                '            "GIT_ALLOW_PROTOCOL": ":".join(protocols),\n',
                '            "GIT_ALLOW_PROTOCOL": "ext:file:https:http:" + ":".join(protocols),\n',
            ),
        ),
        "tests/connectors/test_git_safety.py::test_git_gets_its_own_environment",
    ),
    Mutation(
        "a git that can be pinned to an address",
        "an older one resolves the name again",
        "connectors/git/program.py",
        (("        if version < MINIMUM_VERSION:\n", "        if False:\n"),),
        "tests/connectors/test_git_safety.py::test_a_git_that_cannot_be_pinned_is_refused",
    ),
    Mutation(
        "the folders whose repositories may be read",
        "any repository of this host can be read",
        "connectors/git/local.py",
        (
            (
                "if not parts or not all(_is_inside(part, allowed) for part in parts):",
                "if not parts:",
            ),
        ),
        "tests/connectors/test_git_safety.py::test_local_repositories_are_refused_by_default",
    ),
    Mutation(
        "where links of a repository lead",
        "a link inside a root can point out of it",
        "connectors/git/local.py",
        (
            (
                "    real = Path(os.path.realpath(path))\n    return any",
                "    real = path\n    return any",
            ),
        ),
        "tests/connectors/test_git_safety.py::test_what_leads_out_of_a_root_is_refused",
    ),
    Mutation(
        "a separate mirror for each connection",
        "anyone who knows the address can read another tenant's mirror",
        "connectors/git/storage.py",
        (
            (
                'f"{connection.id.hex}-{_digest(connection.tenant_id)}"',
                "f\"{'0' * 32}-shared\"",
            ),
        ),
        "tests/connectors/test_git_origin.py::test_a_connection_cannot_read_what_another_fetched",
    ),
    Mutation(
        "the part of a commit that is kept",
        "one commit with a huge message takes as much of our memory",
        "connectors/git/commits.py",
        (
            ("is_cut = size > MAX_KEPT\n", "is_cut = False\n"),
            ("begin + min(size, MAX_KEPT)]", "begin + size]"),
        ),
        "tests/connectors/test_git_stored.py::test_only_the_beginning_of_a_large_commit_is_held",
    ),
    Mutation(
        "the environment of a child",
        "it gets all our variables",
        "children/process.py",
        (('        if name in PASSED_ON or name.startswith("LC_")\n', "        if name\n"),),
        "tests/children/test_children.py::test_the_environment_is_an_allow_list",
    ),
    Mutation(
        "the home of a child",
        "it reads the operator's files",
        "children/process.py",
        (
            (
                '| passed_on | {"HOME": str(home), "TMPDIR": str(home)}',
                '| passed_on | {"HOME": os.environ.get("HOME", "/"), "TMPDIR": str(home)}',
            ),
        ),
        "tests/children/test_children.py::test_a_child_has_a_private_folder_that_is_removed_at_its_end",
    ),
    Mutation(
        "the limits of a child",
        "it may use any amount",
        "children/process.py",
        (('*(*limits.arguments(), "--",', '*("--",'),),
        "tests/children/test_children.py::test_limits_are_set",
    ),
    Mutation(
        "the end of what a child started",
        "it continues after the child has ended",
        "children/process.py",
        (("os.killpg(self.process.pid, number)", "os.kill(self.process.pid, number)"),),
        "tests/children/test_children.py::test_what_a_child_started_ends_with_it",
    ),
    Mutation(
        "the end of a child with its parent",
        "it continues after the worker was killed",
        "children/launcher.py",
        (("        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)\n", ""),),
        "tests/children/test_children.py::test_a_child_dies_with_the_process_that_started_it",
    ),
    Mutation(
        "the output of a child",
        "it may print any amount",
        "children/process.py",
        (("        if len(output) > max_output:\n", "        if False:\n"),),
        "tests/children/test_children.py::test_output_beyond_the_bound_ends_the_child",
    ),
    Mutation(
        "the addresses of foreign programs",
        "their proxy connects to any address",
        "http/resolution.py",
        (
            (
                "if not environment.allow_private and not environment.is_allowed(address):",
                "if False:",
            ),
        ),
        "tests/http/test_egress_proxy.py::test_private_addresses_are_refused_with_the_message_of_the_client",
    ),
    Mutation(
        "the files of foreign programs",
        "they may change the files that they see",
        "children/sandbox_launcher.py",
        (
            (
                "        attributes = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV\n",
                "        attributes = MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV\n",
            ),
        ),
        "tests/connectors/foreign/test_sandbox.py::test_files_cannot_be_written_outside_its_folder",
    ),
    Mutation(
        "the rights of foreign programs",
        "they keep their capabilities",
        "children/sandbox_launcher.py",
        (("        give_up_rights(is_root)\n", ""),),
        "tests/connectors/foreign/test_sandbox.py::test_it_sees_no_process_but_its_own_and_has_no_rights",
    ),
    Mutation(
        "the homes that foreign programs do not see",
        "a home inside a visible folder is visible too",
        "children/sandbox_launcher.py",
        (
            (
                "        if os.path.isdir(root + path):\n            mount",
                "        if False:\n            mount",
            ),
        ),
        "tests/connectors/foreign/test_sandbox.py::test_a_home_folder_inside_a_visible_one_is_hidden",
    ),
    Mutation(
        "foreign programs that cannot be confined",
        "tenants may connect them anyway",
        "connectors/foreign/connector.py",
        (("        reason = self.probe()\n", "        reason: str | None = None\n"),),
        "tests/connectors/foreign/test_sandbox.py::test_tenants_may_use_it_only_in_a_sandbox",
    ),
    Mutation(
        "the ports of foreign programs",
        "their proxy connects to other services",
        "http/egress_proxy.py",
        (("        check_url(url, allow_private=self.environment.allow_private)\n", ""),),
        "tests/http/test_egress_proxy.py::test_ports_of_other_services_are_refused",
    ),
)
