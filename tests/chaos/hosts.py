"""Hosts in separate network namespaces: their links, the links' rates, and a forwarder that delays, loses and withholds packets.

`enter` runs the program again in new namespaces, so that hosts, devices and processes end with it, however it ends.
"""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import threading

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))

import harness  # noqa: E402

# Tells this program that it runs in its own namespaces.
INSIDE = "FERROFLOW_CHAOS_INSIDE"
SKIPPED = 0
# The namespaces needed: one of mounts for /run/netns, and one of processes, so that all of them end with the first.
WAYS = [["--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"],
        ["--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "--kill-child=KILL", "--mount-proc"]]
PROBE_SECONDS = 2.0
PROBE_TRIPS = 300
PROBE_PORT = 5001
# The program of a probe: `sink` receives bytes, and answers single ones; `source` sends for a while, then times round trips.
PROBE = """
import json, socket, statistics, sys, time
role, address, seconds, trips = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4])
PORT = 5001
def connect():
    connection = socket.create_connection((address, PORT), 20)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection
if role == "sink":
    listener = socket.create_server((address, PORT))
    print("ready", flush=True)
    bulk, _ = listener.accept()
    buffer, total, start = bytearray(1 << 20), 0, None
    while count := bulk.recv_into(buffer):
        start = start or time.perf_counter()
        total += count
    print(json.dumps({"bits": 8 * total / (time.perf_counter() - start)}), flush=True)
    echo, _ = listener.accept()
    echo.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    while byte := echo.recv(1):
        echo.sendall(byte)
else:
    bulk, data, end = connect(), bytes(1 << 20), time.perf_counter() + seconds
    while time.perf_counter() < end:
        bulk.sendall(data)
    bulk.close()
    echo, took = connect(), []
    for _ in range(trips):
        start = time.perf_counter()
        echo.sendall(b"x")
        echo.recv(1)
        took.append(time.perf_counter() - start)
    print(json.dumps({"trip_micros": 1e6 * statistics.median(took)}), flush=True)
"""


class Unsupported(Exception):
    """The system lacks permission or a feature."""


def run(*command):
    """Runs a system command, and returns its output."""
    done = subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode != 0:
        raise Unsupported(f"`{' '.join(map(str, command))}`: {done.stdout.strip()}")
    return done.stdout


def enter():
    """Runs this program again in new namespaces, where this function returns, and exits with its exit code. If the system allows no
    namespaces, prints that and exits."""
    if os.environ.get(INSIDE):
        harness.die_with_parent()
        return
    for tool in ("unshare", "nsenter", "ip", "tc", "mount"):
        if not shutil.which(tool):
            print(f"skipped: there is no `{tool}`")
            sys.exit(SKIPPED)
    if not os.access("/dev/net/tun", os.R_OK | os.W_OK):
        print("skipped: /dev/net/tun can't be opened")
        sys.exit(SKIPPED)
    for way in WAYS:
        may = subprocess.run(["unshare", *way, "sh", "-c", "mount -t tmpfs tmpfs /run && ip tuntap add dev probe mode tun"],
                             capture_output=True)
        if may.returncode == 0:
            break
    else:
        print("skipped: this system lets nobody make network namespaces")
        sys.exit(SKIPPED)
    process = subprocess.Popen([*harness.DIES_WITH_PARENT, "unshare", *way, sys.executable, *sys.argv],
                               env={**os.environ, INSIDE: "1"})
    while True:
        try:
            sys.exit(process.wait())
        except KeyboardInterrupt:
            # The terminal signals the processes inside, too, and they clean up.
            pass


class Host:
    """A network namespace with an address."""

    def __init__(self, name, address, device):
        self.name, self.address, self.device = name, address, device

    def within(self, command):
        """Returns a command that runs on the host."""
        return ["nsenter", f"--net=/run/netns/{self.name}", *map(str, command)]

    def set_rate(self, bits):
        """Limits the rate at which the host sends; `None` removes the limit."""
        if bits is None:
            subprocess.run(self.within(["tc", "qdisc", "del", "dev", self.device, "root"]), capture_output=True)
            return
        # A burst of a millisecond, which the kernel's timer needs, and at least a segment of 64 kB.
        burst = max(int(bits / 8 / 1000), 128 << 10)
        run(*self.within(["tc", "qdisc", "replace", "dev", self.device, "root", "tbf", "rate", int(bits), "burst", burst,
                          "limit", max(int(bits / 8 / 50), 1 << 20)]))


class Network:
    """Hosts that are connected by a bridge or by a forwarder."""

    def __init__(self, names, forwarder=None, offload=False, seed=1):
        """Creates the hosts; `forwarder` is the path of the program. Without it, a bridge joins them."""
        run("mount", "-t", "tmpfs", "tmpfs", "/run")
        os.makedirs("/run/netns")
        self.hosts, self.forwarder = {}, None
        for number, name in enumerate(names):
            run("ip", "netns", "add", name)
            run("ip", "-n", name, "link", "set", "lo", "up")
            self.hosts[name] = Host(name, f"10.99.0.{number + 1}", "net0")
        if forwarder:
            self.forwarder = Forwarder(forwarder, self.hosts.values(), offload, seed)
            self.place(lambda host: self.forwarder.device(host))
        else:
            run("ip", "link", "add", "bridge", "type", "bridge")
            run("ip", "link", "set", "bridge", "up")
            for number in range(len(names)):
                run("ip", "link", "add", f"near{number}", "type", "veth", "peer", "name", f"far{number}")
                run("ip", "link", "set", f"near{number}", "master", "bridge", "up")
            self.place(lambda host: f"far{list(self.hosts).index(host.name)}")

    def place(self, device_of):
        """Moves a device into each host and gives it the host's address."""
        for host in self.hosts.values():
            run("ip", "link", "set", device_of(host), "netns", host.name)
            run("ip", "-n", host.name, "link", "set", device_of(host), "name", host.device)
            run("ip", "-n", host.name, "address", "add", f"{host.address}/24", "dev", host.device)
            run("ip", "-n", host.name, "link", "set", host.device, "txqueuelen", "2000", "up")

    def probe(self, source, sink):
        """Measures the path from one host to another: bits per second of one TCP connection, and microseconds of a round trip."""
        start = lambda role, host: subprocess.Popen(  # noqa: E731
            host.within([sys.executable, "-c", PROBE, role, self.hosts[sink].address, PROBE_SECONDS, PROBE_TRIPS]),
            stdout=subprocess.PIPE, text=True)
        taking = start("sink", self.hosts[sink])
        taking.stdout.readline()
        sending = start("source", self.hosts[source])
        told = [json.loads(process.communicate(timeout=120)[0]) for process in (sending, taking)]
        return {**told[0], **told[1]}

    def close(self):
        """Ends the forwarder, which removes its devices; the namespaces end with the program."""
        if self.forwarder:
            self.forwarder.stop()
        else:
            run("ip", "link", "del", "bridge")
        for name in self.hosts:
            run("ip", "netns", "del", name)
        run("umount", "--lazy", "/run")


class Forwarder:
    """The program that forwards packets between the hosts."""

    def __init__(self, program, hosts, offload, seed):
        named = [f"{self.device(host)}={host.address}" for host in hosts]
        flags = ["--offload"] if offload else []
        self._lock = threading.Lock()
        self._process = subprocess.Popen([program, *flags, "--seed", str(seed), *named], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                         text=True)
        if self._process.stdout.readline().strip() != "ready":
            raise Unsupported("the forwarder can't make its devices")

    @staticmethod
    def device(host):
        return f"tun-{host.name}"

    def tell(self, command):
        with self._lock:
            self._process.stdin.write(command + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline().strip()
        if not answer or answer.startswith("error"):
            raise Unsupported(f"the forwarder: {answer or 'it has ended'}")
        return answer

    def set(self, host, direction, **settings):
        """Sets the conditions of a host in a direction (in, out, both): delay_ms, loss, cut."""
        named = " ".join(f"{name}={'yes' if value is True else 'no' if value is False else value}" for name, value in settings.items())
        self.tell(f"set {self.device(host)} {direction} {named}")

    def stop(self):
        self._process.stdin.close()
        self._process.wait()
