#!/usr/bin/env python3
"""Sessions of other projects' clients through reloads and upgrades of Weir's binary.

usage: run.py WEIR FOLDER [SESSIONS] [RELOADS] [UPGRADES] [epoll|io_uring]

FOLDER gets the packages, for this run and later ones: `websockets` (pip), `ws` (npm) and
gorilla/websocket (go). Besides them, Node's `http2` has ten sessions on each connection, and
`openssl s_client` sends lines through a session of `stream`, and changes its keys right behind each
move (`K`: the server is to change its own, too; `k`).
1,000 sessions of each, ten reloads and three upgrades, if nothing else is said. Each message is
compared. Fails if a session ends, or if old workers stay for longer than ten seconds.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
PATIENCE_S = 10
S_CLIENT = [["-tls1_3", "-ciphersuites", suite] for suite in
            ["TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"]] + [
           ["-tls1_2", "-cipher", suite] for suite in
            ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
             "ECDHE-ECDSA-CHACHA20-POLY1305"]]
CONFIG = """worker_processes 2;
worker_rlimit_nofile 20000;
pid %(folder)s/weir.pid;
error_log %(folder)s/error.log notice;
events { use %(driver)s; worker_connections 20000; }
http {
    access_log off;
    http2 on;
    ssl_certificate %(folder)s/cert.pem;
    ssl_certificate_key %(folder)s/key.pem;
    server {
        listen 127.0.0.1:%(https)s ssl backlog=4096;
        listen 127.0.0.1:%(http)s;
        location = /status { stub_status json; }
        location = /ws {
            proxy_pass http://127.0.0.1:%(ws)s;
            proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade;
            proxy_set_header Connection upgrade;
            proxy_read_timeout 1h;
        }
    }
}
stream {
    ssl_certificate %(folder)s/cert.pem;
    ssl_certificate_key %(folder)s/key.pem;
    server {
        listen 127.0.0.1:%(stream)s ssl backlog=4096;
        proxy_timeout 1h;
        proxy_pass 127.0.0.1:%(echo)s;
    }
}
"""


def prepare(folder):
    """Installs what is missing."""
    def do(*command):
        subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    folder.mkdir(exist_ok=True)
    folder.chmod(0o755)
    if not (folder / "venv/bin/python").exists():
        do(sys.executable, "-m", "venv", "venv")
        do("venv/bin/pip", "install", "--quiet", "websockets")
    if not (folder / "node_modules/ws").exists():
        do("npm", "install", "--silent", "--no-audit", "--prefix", ".", "ws")
    go = folder / "go"
    go.mkdir(exist_ok=True)
    (go / "client.go").write_bytes((HERE / "client.go").read_bytes())
    if not (go / "go.mod").exists():
        do("go", "-C", "go", "mod", "init", "client")
        do("go", "-C", "go", "get", "github.com/gorilla/websocket")
    do("go", "-C", "go", "build", "-o", "client", ".")
    do("openssl", "req", "-x509", "-nodes", "-days", "2", "-newkey", "ec", "-pkeyopt",
       "ec_paramgen_curve:prime256v1", "-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem")


def free_port():
    import socket
    with socket.socket() as made:
        made.bind(("127.0.0.1", 0))
        return made.getsockname()[1]


class Weir:
    def __init__(self, binary, folder, driver):
        self.folder = folder
        names = ["https", "http", "ws", "stream", "echo"]
        self.ports = {name: free_port() for name in names}
        text = CONFIG % (self.ports | {"folder": folder, "driver": driver})
        (folder / "weir.conf").write_text(text)
        (folder / "error.log").write_text("")
        command = [binary, "-p", folder, "-c", folder / "weir.conf", "-e", folder / "error.log"]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)

    def pid(self):
        return int((self.folder / "weir.pid").read_text())

    def workers(self, master=None):
        """The workers of a master."""
        master = master or self.pid()
        text = Path(f"/proc/{master}/task/{master}/children").read_text()
        is_worker = lambda pid: "worker process" in Path(f"/proc/{pid}/cmdline").read_text()
        return [pid for pid in text.split() if is_worker(pid)]

    async def gone(self, old):
        """The seconds until these processes have ended."""
        began = time.monotonic()
        while any(os.path.exists(f"/proc/{pid}") for pid in old):
            if time.monotonic() - began > PATIENCE_S:
                raise SystemExit(f"old workers are still there after {PATIENCE_S} s")
            await asyncio.sleep(0.005)
        return time.monotonic() - began

    async def reload(self):
        old = self.workers()
        os.kill(self.pid(), signal.SIGHUP)
        return await self.gone(old)

    async def upgrade(self):
        master, old = self.pid(), self.workers()
        os.kill(master, signal.SIGUSR2)
        while True:
            await asyncio.sleep(0.02)
            try:
                if self.pid() != master and self.workers():
                    break
            except (FileNotFoundError, ValueError):
                pass
        os.kill(master, signal.SIGQUIT)
        return await self.gone(old)


class Program:
    """A program with many sessions."""

    def __init__(self, name, *command):
        self.name, self.command = name, command

    async def start(self, folder):
        env = os.environ | {"NODE_PATH": str(folder / "node_modules")}
        self.process = await asyncio.create_subprocess_exec(
            *self.command, stdout=subprocess.PIPE, env=env, limit=1 << 20)
        line = await asyncio.wait_for(self.process.stdout.readline(), 120)
        if line.strip() != b"ready":
            raise SystemExit(f"{self.name}: {line}")

    async def end(self):
        self.process.terminate()
        out = (await asyncio.wait_for(self.process.communicate(), 60))[0].splitlines()
        return json.loads(out[-1]) if out else {}


class SClients:
    """Sessions of `openssl s_client`."""

    name = "openssl s_client"

    def __init__(self, port, sessions):
        self.port, self.sessions = port, sessions
        self.counts = dict(sessions=sessions, messages=0, wrong=0, closed=0, key_changes=0)
        self.all, self.number = [], 0

    async def start(self, _):
        few = asyncio.Semaphore(20)

        async def one(i):
            async with few:
                command = ["openssl", "s_client", "-connect", f"127.0.0.1:{self.port}", "-servername",
                           "localhost", *S_CLIENT[i % len(S_CLIENT)]]
                made = await asyncio.create_subprocess_exec(
                    *command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.all.append((i, made))
                await self.talk(i, made)
        await asyncio.gather(*(one(i) for i in range(self.sessions)))

    async def talk(self, i, made, command=None):
        """A line there and back, with a command of s_client before it."""
        if command and i % len(S_CLIENT) < 3:
            made.stdin.write(command + b"\n")
            await made.stdin.drain()
            # What is read at once with other bytes is no command.
            await asyncio.wait_for(self.line(made.stderr, b"KEYUPDATE"), PATIENCE_S)
            self.counts["key_changes"] += 1
        self.number += 1
        message = f"message {i}:{self.number}"
        made.stdin.write(message.encode() + b"\n")
        await made.stdin.drain()
        line = await asyncio.wait_for(self.line(made.stdout, b"message"), PATIENCE_S)
        self.counts["messages" if line.decode().strip() == message else "wrong"] += 1

    async def line(self, output, begin):
        while True:
            line = await output.readline()
            if not line:
                raise EOFError
            if line.startswith(begin):
                return line

    async def round(self):
        async def one(i, made):
            try:
                for command in (b"K", None, b"k", None):
                    await self.talk(i, made, command)
            except (EOFError, OSError, asyncio.TimeoutError) as error:
                self.counts["closed"] += 1
                print(f"s_client {i}: {error!r}", file=sys.stderr)
        await asyncio.gather(*(one(*each) for each in self.all))

    async def end(self):
        for _, made in self.all:
            if made.returncode is None:
                made.kill()
            await made.wait()
        return self.counts


async def main():
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    given = [int(word) for word in sys.argv[3:6]]
    sessions, reloads, upgrades = given + [1000, 10, 3][len(given):]
    binary, folder = Path(sys.argv[1]).resolve(), Path(sys.argv[2]).resolve()
    driver = sys.argv[6] if len(sys.argv) > 6 else "epoll"
    prepare(folder)
    weir = Weir(binary, folder, driver)
    url = f"wss://127.0.0.1:{weir.ports['https']}/ws"
    echo = await asyncio.start_server(serve, "127.0.0.1", weir.ports["echo"], backlog=4096)
    server = Program("server", "node", HERE / "server.js", str(weir.ports["ws"]))
    key_changes = SClients(weir.ports["stream"], sessions)
    clients = [
        Program("Python websockets", folder / "venv/bin/python", HERE / "client.py", url, str(sessions)),
        Program("Node ws", "node", HERE / "client.js", url, str(sessions)),
        Program("Node http2", "node", HERE / "client_http2.js", url.replace("wss", "https"),
                str(sessions)),
        Program("Go gorilla/websocket", folder / "go/client", url, str(sessions)),
        key_changes,
    ]
    failed = False
    try:
        await server.start(folder)
        for client in clients:
            await client.start(folder)
        for change, count in (weir.reload, reloads), (weir.upgrade, upgrades):
            for _ in range(count):
                took = await change()
                await key_changes.round()
                print(f"{change.__name__}: old workers gone after {1000 * took:.0f} ms", flush=True)
        for client in clients:
            counts = await client.end()
            bad = sum(counts.get(name, 0) for name in ("wrong", "closed", "goaways"))
            failed |= bad > 0 or not counts.get("messages")
            print(f"{client.name}: {json.dumps(counts)}", flush=True)
        log = (folder / "error.log").read_text()
        bad = [line for line in log.splitlines() if "[alert]" in line or "[emerg]" in line]
        failed |= bool(bad)
        if bad:
            print("\n".join(bad[:5]))
    finally:
        for each in [server, *clients]:
            process = getattr(each, "process", None)
            if process and process.returncode is None:
                process.kill()
        await key_changes.end()
        os.kill(weir.pid(), signal.SIGTERM)
        echo.close()
    sys.exit(1 if failed else 0)


async def serve(reader, writer):
    try:
        while data := await reader.read(65536):
            writer.write(data)
    except (asyncio.CancelledError, OSError):
        pass  # the run is over
    writer.close()


asyncio.run(main())
