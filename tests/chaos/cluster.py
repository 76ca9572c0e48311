"""Clusters that can be broken: containers of deploy/docker-compose.yml, the same roles as processes, or one process.

All have the same verbs, which block and are called from a thread beside the load:

    kill stop start          SIGKILL; SIGTERM and wait; start again
    pause resume             stand still with open sockets
    cut join                 no packet leaves the member or reaches where it listens
    fill empty               the member's disk takes no more bytes, or does again
    roll                     all members one after another, as deploy/rolling-restart.sh does it
    corrupt flip wipe        bytes of a file change, or bits of several; all its files are gone (while it is down)
    rejoin                   start a meta without its files, which is refused, and then one that joins the group again
    keep put_back            restart, its directory being copied meanwhile; restart with that copy
    disturb relent           calls for its files fail; no more
    revive                   start whoever has ended over a failed disk, as whatever supervises processes does

`verbs` says which of them this cluster can do on this machine. Everything that was made is gone after `destroy`.
"""

import contextlib
import dataclasses
import json
import os
import pathlib
import random
import secrets
import shutil
import signal
import subprocess
import time

import places

ROOT = pathlib.Path(__file__).resolve().parents[2]
META, DATANODES, FRONTENDS = 3, 3, 2
# How long a role may take until it says that it is ready.
START_S = 240
STOP_S = 60
# Group numbers of the processes, so that the firewall can tell them apart.
FIRST_GROUP = 47100
# What a process ends with when its disk has failed.
EXIT_IO_ERROR = 74
# How a meta says that it is a member again, and in how many of its last lines that is looked for.
REJOINED, REJOINED_LINES = "has rejoined meta's group", 200
# Bits that flip at once: of each partition's files one, and of a log as many as its parts.
FLIPS = 16
MARK = "partita-chaos"
# Verbs that need nothing but the directories.
OF_FILES = ("corrupt", "flip", "wipe", "keep", "put_back")


@dataclasses.dataclass(frozen=True)
class Member:
    """One node of the cluster. `address` is how sys.nodes calls it; `sql` is its PostgreSQL door."""

    name: str
    role: str
    address: str = ""
    sql: tuple | None = None


class Broken(Exception):
    """The cluster could not be made or does not do what it was told."""


def run(*command, check=True, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if check and done.returncode != 0:
        raise Broken(f"{' '.join(str(part) for part in command)}: {done.stderr.strip() or done.stdout.strip()}")
    return done.stdout.strip()


def is_root():
    return os.geteuid() == 0


class Disk:
    """A small file system in memory that outlives the member whose data is on it."""

    def __init__(self, path, mib):
        self.path, self.mib = pathlib.Path(path), mib
        self.data = self.path / "data"

    def mount(self):
        self.path.mkdir(parents=True, exist_ok=True)
        run("mount", "-t", "tmpfs", "-o", f"size={self.mib}m", MARK, self.path)
        self.data.mkdir()
        return self

    def fill(self):
        free = os.statvfs(self.path)
        with open(self.path / "ballast", "wb", buffering=0) as file:
            with contextlib.suppress(OSError):
                os.posix_fallocate(file.fileno(), 0, max(1, free.f_bavail * free.f_frsize))
            # What a writer freed meanwhile, to the last page.
            with contextlib.suppress(OSError):
                file.seek(0, os.SEEK_END)
                while True:
                    file.write(b"\0" * 4096)

    def empty(self):
        (self.path / "ballast").unlink(missing_ok=True)

    def unmount(self):
        run("umount", self.path, check=False)


def damage(folder, draw, classes, count, width=0):
    """Flips bits of a data directory, or changes some bytes; returns the places."""
    dice = random.Random(draw)
    found = places.pick(places.regions(folder), dice, count, classes, width)
    if not found:
        raise Broken(f"{folder} has no files yet")
    for place in found:
        places.flip(folder, place)
    return found


class Certificates:
    """A certificate for each member and a password for clients, made by the binary. They lie beside the members'
    directories, where no fault of a disk reaches them."""

    HOSTS = "localhost,127.0.0.1"

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, pathlib.Path(folder)
        self.password_file = self.folder / "password"

    def make(self, members):
        run(self.binary, "certs", "--dir", self.folder, "init")
        for member in members:
            # One process with every role has the doors of a frontend.
            role = "frontend" if member.role == "server" else member.role
            run(self.binary, "certs", "--dir", self.folder, "issue", role, member.name, "--host", self.HOSTS)
        with open(os.open(self.password_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_hex(15) + "\n")

    def options(self, member):
        """Arguments of a member. Doors take nothing without TLS and the password."""
        found = ["--certs", self.folder / member.name]
        if member.sql:
            found += ["--require-tls", "--initial-password-file", self.password_file]
        return found

    def of_clients(self):
        """Variables that libpq reads: servers are verified in full."""
        return {
            "PGPASSWORD": self.password_file.read_text().strip(),
            "PGSSLMODE": "verify-full",
            "PGSSLROOTCERT": str(self.folder / "ca.pem"),
        }


class Cluster:
    """What the kinds of clusters share."""

    members: list
    verbs: set

    def of_role(self, role):
        return [member for member in self.members if member.role == role]

    def doors(self):
        return [member.sql for member in self.members if member.sql]

    def revive(self):
        """The names of those that were started. Containers have their own restart policy."""
        return []

    def corrupt(self, member, draw):
        """Changes bytes of one file of rows, log or manifest."""
        return damage(self.data(member), draw, (*places.OF_LOG[:4], *places.PART_OF_PARTITION), 1, 16)

    def flip(self, member, draw):
        """Flips one bit of each of several files."""
        return damage(self.data(member), draw, places.WITH_COPIES, FLIPS)

    def wipe(self, member, _draw=None):
        for path in self.data(member).iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        return []

    def keep(self, member):
        self.stop(member)
        older = self.older(member)
        shutil.rmtree(older, ignore_errors=True)
        older.parent.mkdir(parents=True, exist_ok=True)
        run("cp", "-a", "--sparse=always", self.data(member), older)
        self.start(member)

    def put_back(self, member):
        self.kill(member)
        self.wipe(member)
        run("cp", "-a", "--sparse=always", f"{self.older(member)}/.", self.data(member))
        self.start(member)

    def older(self, member):
        return self.work / "older" / member.name


class Processes(Cluster):
    """The roles as processes on loopback, with certificates or without."""

    def __init__(self, binary, work, port, options, small_disk_mib=0, tls=False):
        self.binary, self.work, self.port = pathlib.Path(binary).resolve(), pathlib.Path(work), port
        self.options = options
        self.certificates = Certificates(self.binary, self.work / "certs") if tls else None
        self.running, self.paused, self.cuts, self.disks = {}, set(), {}, {}
        # Members that are to run.
        self.wanted = set()
        self.members = self.make_members()
        self.verbs = {"kill", "stop", "start", "pause", "resume", "rejoin", *OF_FILES}
        # The library that makes calls fail; only where that is wanted.
        self.library = None
        if shutil.which("cc"):
            self.verbs |= {"disturb", "relent"}
        if is_root() and shutil.which("iptables"):
            self.verbs |= {"cut", "join"}
        if is_root() and small_disk_mib:
            self.verbs |= {"fill", "empty"}
            for member in self.members:
                if member.role in ("datanode", "server"):
                    self.disks[member.name] = Disk(self.work / "disk" / member.name, small_disk_mib)

    def make_members(self):
        at = lambda offset: f"127.0.0.1:{self.port + offset}"  # noqa: E731
        members = [Member(f"meta{n}", "meta", at(n)) for n in range(1, META + 1)]
        members += [Member(f"datanode{n}", "datanode", at(10 + n)) for n in range(1, DATANODES + 1)]
        members += [
            Member(f"frontend{n}", "frontend", at(20 + n), ("127.0.0.1", self.port + 30 + n))
            for n in range(1, FRONTENDS + 1)
        ]
        return members

    def command(self, member):
        number = member.name[-1]
        metas = [meta.address for meta in self.of_role("meta")]
        if member.role == "meta":
            peers = ",".join(f"{at}={address}" for at, address in enumerate(metas, 1))
            return ["meta", "--data-dir", self.data(member), "--node", number, "--peers", peers, "--listen", member.address]
        if member.role == "datanode":
            where = ["--listen", member.address, "--advertise", member.address]
            return ["datanode", "--data-dir", self.data(member), "--meta", ",".join(metas), *where]
        doors = ["--http", member.address, "--postgres", "{}:{}".format(*member.sql)]
        return ["frontend", "--meta", ",".join(metas), *doors, "--spill-dir", self.work / member.name / "spill"]

    def security(self, member):
        """Arguments that decide whether its ports have TLS."""
        if self.certificates is not None:
            return self.certificates.options(member)
        return ["--insecure"] if member.role == "frontend" else []

    def whole_command(self, member, *more):
        """The program and all its arguments."""
        options = self.options.get(member.role, [])
        return [str(part) for part in (self.binary, *self.command(member), *self.security(member), *options, *more)]

    def data(self, member):
        disk = self.disks.get(member.name)
        return disk.data if disk else self.work / member.name / "data"

    def up(self):
        for disk in self.disks.values():
            disk.mount()
        if self.certificates is not None:
            self.certificates.make(self.members)
            os.environ.update(self.certificates.of_clients())
        for member in self.members:
            self.launch(member)
        for member in self.members:
            self.wait_ready(member)

    def preload(self):
        """Has calls fail when `disturb` says so: for members that start from now on."""
        self.library = self.work / "faults.so"
        self.work.mkdir(parents=True, exist_ok=True)
        run("cc", "-shared", "-fPIC", "-O1", "-o", self.library, ROOT / "tests" / "it" / "faults.c", "-ldl")

    def orders(self, member):
        return self.work / member.name / "orders"

    def environment(self, member):
        if self.library is None or member.role == "frontend":
            return None
        return {**os.environ, "LD_PRELOAD": str(self.library), "PARTITA_FAULTS": str(self.orders(member))}

    def disturb(self, member, orders):
        """Whole or not at all: the file is read all the time."""
        new = self.orders(member).with_suffix(".new")
        new.write_text("".join(f"{order}\n" for order in orders))
        new.rename(self.orders(member))

    def relent(self, member):
        self.orders(member).unlink(missing_ok=True)

    def revive(self):
        ended = [member for member in self.members if member.name in self.wanted and self.exit_code(member) == EXIT_IO_ERROR]
        for member in ended:
            self.launch(member)
        return [member.name for member in ended]

    def exit_code(self, member):
        return self.running[member.name].poll()

    def rejoin(self, member):
        self.launch(member)
        try:
            code = self.running[member.name].wait(STOP_S)
        except subprocess.TimeoutExpired:
            raise Broken(f"{member.name} goes on without its files") from None
        if code == 0:
            raise Broken(f"{member.name} ended without its files as if all were well")
        self.wipe(member)
        self.launch(member, "--rejoin")
        # Until then the group is one member short, and another one that is lost is too much.
        until = time.monotonic() + START_S
        while self.log_tail(member, REJOINED_LINES).count(REJOINED) == 0:
            if time.monotonic() > until:
                raise Broken(f"{member.name} has not joined again after {START_S} s: {self.log_tail(member)}")
            time.sleep(0.1)

    def launch(self, member, *more):
        self.wanted.add(member.name)
        folder = self.work / member.name
        folder.mkdir(parents=True, exist_ok=True)
        group = {"group": FIRST_GROUP + self.members.index(member), "extra_groups": []} if "cut" in self.verbs else {}
        with open(folder / "ready", "wb") as ready, open(folder / "log", "ab") as log:
            self.running[member.name] = subprocess.Popen(
                self.whole_command(member, *more), stdout=ready, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
                env=self.environment(member), **group,
            )  # fmt: skip

    def wait_ready(self, member):
        until = time.monotonic() + START_S
        folder = self.work / member.name
        while "is ready" not in (folder / "ready").read_text():
            code = self.running[member.name].poll()
            if code is not None:
                raise Broken(f"{member.name} ended with {code}: {self.log_tail(member)}")
            if time.monotonic() > until:
                raise Broken(f"{member.name} is not ready after {START_S} s: {self.log_tail(member)}")
            time.sleep(0.02)

    def log_tail(self, member, lines=15):
        log = self.work / member.name / "log"
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""

    def alive(self, member):
        process = self.running.get(member.name)
        return process is not None and process.poll() is None

    def signal(self, member, number):
        process = self.running[member.name]
        if process.poll() is None:
            process.send_signal(number)

    def kill(self, member):
        self.wanted.discard(member.name)
        self.signal(member, signal.SIGKILL)
        self.running[member.name].wait()

    def stop(self, member):
        self.wanted.discard(member.name)
        self.signal(member, signal.SIGTERM)
        try:
            self.running[member.name].wait(STOP_S)
        except subprocess.TimeoutExpired:
            self.kill(member)
            raise Broken(f"{member.name} did not stop within {STOP_S} s of SIGTERM") from None

    def start(self, member):
        self.launch(member)

    def pause(self, member):
        self.signal(member, signal.SIGSTOP)
        self.paused.add(member.name)

    def resume(self, member):
        self.signal(member, signal.SIGCONT)
        self.paused.discard(member.name)

    def cut(self, member):
        group = FIRST_GROUP + self.members.index(member)
        port = member.address.rsplit(":", 1)[1]
        tag = ["-m", "comment", "--comment", MARK, "-j", "DROP"]
        rules = [
            ["OUTPUT", "-m", "owner", "--gid-owner", group, *tag],
            ["INPUT", "-p", "tcp", "--dport", port, *tag],
        ]
        self.cuts[member.name] = rules
        for rule in rules:
            run("iptables", "-w", "-I", *rule)

    def join(self, member):
        for rule in self.cuts.pop(member.name, []):
            run("iptables", "-w", "-D", *rule, check=False)

    def fill(self, member):
        self.disks[member.name].fill()

    def empty(self, member):
        self.disks[member.name].empty()

    def destroy(self):
        for member in self.members:
            self.join(member)
            if self.alive(member):
                self.signal(member, signal.SIGCONT)
                self.kill(member)
        for disk in self.disks.values():
            disk.unmount()

    def logs(self, folder):
        for member in self.members:
            log = self.work / member.name / "log"
            if log.exists():
                shutil.copy(log, folder / f"{member.name}.log")


class Standalone(Processes):
    """One process with every role."""

    def make_members(self):
        return [Member("server", "server", f"127.0.0.1:{self.port + 1}", ("127.0.0.1", self.port + 31))]

    def command(self, member):
        doors = ["--http", member.address, "--postgres", "{}:{}".format(*member.sql)]
        return ["standalone", "--data-dir", self.data(member), *doors]


class Compose(Cluster):
    """The containers of deploy/docker-compose.yml, as a project of their own, on an address of their own."""

    PROJECT, BIND = "partita-chaos", "127.0.10.1"

    def __init__(self, image, work, options, small_disk_mib=0):
        self.work, self.image, self.options = pathlib.Path(work), image, options
        self.file = ROOT / "deploy" / "docker-compose.yml"
        self.members = [Member(f"meta{n}", "meta", f"meta{n}:4010") for n in range(1, META + 1)]
        self.members += [Member(f"datanode{n}", "datanode", f"datanode{n}:4020") for n in range(1, DATANODES + 1)]
        self.members += [
            Member(f"frontend{n}", "frontend", f"frontend{n}:4000", (self.BIND, 4002 + n)) for n in range(1, FRONTENDS + 1)
        ]
        self.verbs = {"kill", "stop", "start", "pause", "resume", "cut", "join", "roll", *OF_FILES}
        self.disks, self.containers = {}, {}
        if is_root() and small_disk_mib:
            self.verbs |= {"fill", "empty"}
            for member in self.of_role("datanode"):
                self.disks[member.name] = Disk(self.work / "disk" / member.name, small_disk_mib)

    def compose(self, *arguments, check=True):
        program = ["docker", "compose"]
        if subprocess.run([*program, "version"], capture_output=True).returncode != 0:
            program = ["docker-compose"]
        files = ["-f", self.file, "-f", self.work / "override.json"]
        environment = {**os.environ, "PARTITA_BIND": self.BIND, "PARTITA_IMAGE": self.image, "COMPOSE_PROJECT_NAME": self.PROJECT}
        return run(*program, "-p", self.PROJECT, *files, *arguments, check=check, env=environment)

    def override(self):
        """Volumes on small disks and further options; YAML reads JSON."""
        services = {}
        for member in self.members:
            more = self.options.get(member.role, [])
            if more:
                services[member.name] = {"command": [*self.base_command(member), *more]}
        volumes = {
            name: {"driver": "local", "driver_opts": {"type": "none", "o": "bind", "device": str(disk.data)}}
            for name, disk in self.disks.items()
        }
        return {key: value for key, value in (("services", services), ("volumes", volumes)) if value} or {"services": {}}

    def base_command(self, member):
        number = member.name[-1]
        doors = ["--http", "0.0.0.0:4000", "--postgres", "0.0.0.0:4003"]
        return {
            "meta": ["meta", "--node", number],
            "datanode": ["datanode", "--advertise", member.address],
            "frontend": ["frontend", "--spill-dir", "/var/lib/partita/spill", *doors],
        }[member.role]

    def up(self):
        self.work.mkdir(parents=True, exist_ok=True)
        (self.work / "override.json").write_text(json.dumps(self.override()))
        # What an earlier run that was killed may have left.
        self.compose("down", "-v", "--remove-orphans", check=False)
        for disk in self.disks.values():
            disk.mount()
            # The image's user.
            os.chown(disk.data, 4000, 4000)
        self.compose("up", "-d")
        for member in self.members:
            found = run(
                "docker", "ps", "-aq",
                "--filter", f"label=com.docker.compose.project={self.PROJECT}",
                "--filter", f"label=com.docker.compose.service={member.name}",
            )  # fmt: skip
            if not found:
                raise Broken(f"there is no container of {member.name}")
            self.containers[member.name] = found.splitlines()[0]
        for member in self.members:
            self.wait_ready(member)
        # libpq reads these: the made password, and TLS to an address that no certificate names.
        frontend = self.containers["frontend1"]
        os.environ["PGPASSWORD"] = run("docker", "exec", frontend, "cat", "/certs/password").strip()
        os.environ["PGSSLMODE"] = "require"

    def inspect(self, member, template):
        return run("docker", "inspect", "--format", template, self.containers[member.name])

    def wait_ready(self, member):
        until = time.monotonic() + START_S
        while self.inspect(member, "{{.State.Health.Status}}") != "healthy":
            if time.monotonic() > until:
                raise Broken(f"{member.name} is not healthy after {START_S} s: {self.log_tail(member)}")
            time.sleep(0.2)

    def log_tail(self, member, lines=15):
        done = subprocess.run(
            ["docker", "logs", "--tail", str(lines), self.containers[member.name]], capture_output=True, text=True
        )
        return done.stdout + done.stderr

    def alive(self, member):
        return self.inspect(member, "{{.State.Running}}") == "true"

    def docker(self, verb, member, *options):
        run("docker", verb, *options, self.containers[member.name])

    def kill(self, member):
        if self.alive(member):
            self.docker("kill", member)

    def stop(self, member):
        self.docker("stop", member, "-t", str(STOP_S))

    def start(self, member):
        self.docker("start", member)

    def pause(self, member):
        self.docker("pause", member)

    def resume(self, member):
        self.docker("unpause", member)

    def network(self):
        return f"{self.PROJECT}_partita"

    def cut(self, member):
        run("docker", "network", "disconnect", "--force", self.network(), self.containers[member.name])

    def join(self, member):
        run("docker", "network", "connect", "--alias", member.name, self.network(), self.containers[member.name])

    def fill(self, member):
        self.disks[member.name].fill()

    def empty(self, member):
        self.disks[member.name].empty()

    def roll(self):
        return run(ROOT / "deploy" / "rolling-restart.sh", env={**os.environ, "COMPOSE_PROJECT_NAME": self.PROJECT})

    def data(self, member):
        """The data directory, as this machine sees it."""
        if member.name in self.disks:
            return self.disks[member.name].data
        return pathlib.Path(run("docker", "volume", "inspect", "--format", "{{.Mountpoint}}", f"{self.PROJECT}_{member.name}"))

    def destroy(self):
        for member in self.members:
            if member.name in self.containers:
                subprocess.run(["docker", "unpause", self.containers[member.name]], capture_output=True)
        if (self.work / "override.json").exists():
            self.compose("down", "-v", "--remove-orphans", "--timeout", "2", check=False)
        for disk in self.disks.values():
            disk.unmount()

    def logs(self, folder):
        for member in self.members:
            if member.name in self.containers:
                with open(folder / f"{member.name}.log", "wb") as file:
                    subprocess.run(["docker", "logs", self.containers[member.name]], stdout=file, stderr=file)
