"""The option --tls, without a server: which processes get certificates, and how clients are let in."""

import os
import pathlib
import stat
import sys
import tempfile
import unittest
from unittest import mock

import chaos
import cluster
import faults


class Security(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)
        # Any program will do: it is not run.
        variables = mock.patch.dict(os.environ, {"PARTITA_BIN": sys.executable})
        variables.start()
        self.addCleanup(variables.stop)

    def made(self, *argv):
        options = chaos.arguments(argv)
        options.seed = 7
        return options, chaos.make_cluster(options, self.work)

    def test_every_member_has_its_own_certificate_and_every_door_a_password(self):
        for kind in ("--processes", "--standalone"):
            _, made = self.made(kind, "--tls", "--small-disk-mib", "0")
            self.assertTrue(made.members)
            for member in made.members:
                command = made.whole_command(member)
                certs = command[command.index("--certs") + 1]
                self.assertEqual(certs, str(self.work / "certs" / member.name))
                self.assertNotIn("--insecure", command)
                self.assertEqual("--require-tls" in command, member.role in ("frontend", "server"))
                self.assertEqual("--initial-password-file" in command, member.sql is not None)

    def test_without_the_option_nothing_has_certificates(self):
        for kind in ("--processes", "--standalone"):
            _, made = self.made(kind, "--small-disk-mib", "0")
            for member in made.members:
                command = made.whole_command(member)
                self.assertFalse({"--certs", "--require-tls", "--initial-password-file"} & set(command), command)

    def test_more_arguments_come_last_with_the_option_and_without(self):
        for more in ([], ["--tls"]):
            _, made = self.made("--processes", "--small-disk-mib", "0", "--option", "meta:--tables-per-database 9", *more)
            command = made.whole_command(made.of_role("meta")[0], "--rejoin")
            self.assertEqual(command[-3:], ["--tables-per-database", "9", "--rejoin"])

    def test_certificates_are_made_for_the_role_of_each_member(self):
        for kind in ("--processes", "--standalone"):
            _, made = self.made(kind, "--tls", "--small-disk-mib", "0")
            folder = made.certificates.folder
            folder.mkdir()
            with mock.patch.object(cluster, "run") as run:
                made.certificates.make(made.members)
            calls = [[str(part) for part in call.args] for call in run.call_args_list]
            self.assertEqual(calls[0][1:], ["certs", "--dir", str(folder), "init"])
            for member, call in zip(made.members, calls[1:], strict=True):
                role = "frontend" if member.role == "server" else member.role
                self.assertEqual(call[4:7], ["issue", role, member.name])
                self.assertIn("127.0.0.1", call[-1].split(","))
            mode = stat.S_IMODE(made.certificates.password_file.stat().st_mode)
            self.assertEqual(mode, 0o600)
            variables = made.certificates.of_clients()
            self.assertEqual(variables["PGPASSWORD"], made.certificates.password_file.read_text().strip())
            self.assertGreaterEqual(len(variables["PGPASSWORD"]), 20)
            self.assertEqual(variables["PGSSLMODE"], "verify-full")
            self.assertEqual(variables["PGSSLROOTCERT"], str(folder / "ca.pem"))
            made.certificates.password_file.unlink()
            folder.rmdir()

    def test_the_same_faults_can_be_done_and_none_reaches_the_certificates(self):
        _, plain = self.made("--processes", "--small-disk-mib", "0")
        _, made = self.made("--processes", "--tls", "--small-disk-mib", "0")
        self.assertEqual(made.verbs, plain.verbs)
        for member in made.members:
            certs = pathlib.Path(made.security(member)[1])
            self.assertNotIn(made.data(member), [certs, *certs.parents])
        files = [f"{made.certificates.folder}/datanode1/{name}" for name in ("ca.pem", "cert.pem", "key.pem")]
        for kind in faults.KINDS.values():
            for order in kind.orders:
                self.assertFalse([path for path in files if order.split()[2] in path], order)

    def test_a_run_is_repeated_with_the_option(self):
        options, _ = self.made("--processes", "--tls")
        self.assertIn("--tls", chaos.command_line(options).split())
        options, _ = self.made("--processes")
        self.assertNotIn("--tls", chaos.command_line(options).split())


if __name__ == "__main__":
    unittest.main()
