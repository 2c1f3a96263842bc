#!/usr/bin/env python3
"""The memory of all generations of workers over time, through reloads under open tunnels.

usage: generations.py WEIR NGINX SVG

A site of 500 servers, ten reloads four seconds apart. Between two reloads 200 clients open a
WebSocket through the proxy, which stays open. Both servers have two workers without privilege.
Draws the proportional set size of all processes, and the number of workers, into SVG, and prints
both. The script needs root and Python's standard library.
"""

import grp
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

RELOADS, EVERY_S, CLIENTS, SERVERS, TICK_S = 10, 4.0, 200, 500, 0.1
# Its name differs between distributions.
GROUP = grp.getgrgid(pwd.getpwnam("nobody").pw_gid).gr_name
CONFIG = """user nobody {group}; worker_processes 2; pid {folder}/server.pid; error_log {folder}/error.log;
events {{ worker_connections 8192; }}
http {{
    access_log off;
    server {{
        listen 127.0.0.1:{port};
        location / {{
            proxy_pass http://127.0.0.1:{behind};
            proxy_http_version 1.1; proxy_read_timeout 1h;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade;
        }}
    }}
{servers}
}}
"""
SERVER = """    server {{ listen 127.0.0.1:{port}; server_name s{i}.example;
        location / {{ return 200; }} location ~ ^/a{i}/ {{ return 204; }} }}"""
HEAD = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"
ASK = b"GET / HTTP/1.1\r\nHost: x\r\nUpgrade: websocket\r\nConnection: upgrade\r\n\r\n"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def serve_behind(listener, kept):
    """Opens each tunnel, and leaves it open."""
    while True:
        try:
            client, _ = listener.accept()
        except OSError:
            return
        client.recv(4096)
        client.sendall(HEAD)
        kept.append(client)


def tree(master):
    """The process and all below it: a change of title does not matter."""
    pids, parents = {master}, {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                stat = Path(f"/proc/{entry}/stat").read_text()
                parents[int(entry)] = int(stat.rpartition(")")[2].split()[1])
            except OSError:
                pass
    while True:
        more = {pid for pid, parent in parents.items() if parent in pids} - pids
        if not more:
            return pids
        pids |= more


def look(master):
    """Megabytes of all processes, and how many of them are workers."""
    total, workers = 0, 0
    for pid in tree(master):
        try:
            title = Path(f"/proc/{pid}/cmdline").read_bytes()
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        lines = (line.split() for line in rollup.splitlines())
        total += next(int(words[1]) for words in lines if words[0] == "Pss:")
        workers += b"worker process" in title
    return total / 1024, workers


def measure(program, name):
    folder = Path(tempfile.mkdtemp(prefix="generations-"))
    folder.chmod(0o755)
    listener, kept, clients = socket.create_server(("127.0.0.1", 0), backlog=1024), [], []
    threading.Thread(target=serve_behind, args=(listener, kept), daemon=True).start()
    port = free_port()
    servers = "\n".join(SERVER.format(i=i, port=port) for i in range(SERVERS))
    behind = listener.getsockname()[1]
    (folder / "server.conf").write_text(
        CONFIG.format(folder=folder, port=port, behind=behind, servers=servers, group=GROUP))
    command = [program, "-p", folder, "-c", folder / "server.conf", "-e", folder / "error.log"]
    subprocess.run(command, check=True)
    master = int((folder / "server.pid").read_text())
    rows = []
    try:
        began = time.monotonic()
        reloads = 0
        while (now := time.monotonic() - began) < (RELOADS + 1) * EVERY_S:
            if now > (reloads + 1) * EVERY_S - EVERY_S / 2 and len(clients) <= reloads * CLIENTS:
                for _ in range(CLIENTS):
                    client = socket.create_connection(("127.0.0.1", port))
                    client.sendall(ASK)
                    assert client.recv(4096).startswith(b"HTTP/1.1 101")
                    clients.append(client)
            if now > (reloads + 1) * EVERY_S and reloads < RELOADS:
                os.kill(master, signal.SIGHUP)
                reloads += 1
            rows.append((time.monotonic() - began, *look(master)))
            time.sleep(TICK_S)
        for client in clients:
            client.setblocking(False)
            try:
                ended = client.recv(1) == b""
            except BlockingIOError:
                ended = False
            assert not ended, "a tunnel has ended"
    finally:
        os.kill(master, signal.SIGTERM)
        listener.close()
        shutil.rmtree(folder, ignore_errors=True)
    # The workers have begun by then.
    first, last = next(row for row in rows if row[0] > 1), rows[-1]
    print(f"{name}: {first[1]:.1f} MB and {first[2]} workers at first, {last[1]:.1f} MB and "
          f"{last[2]} workers behind {RELOADS} reloads with {len(clients)} tunnels open; "
          f"at most {max(row[1] for row in rows):.1f} MB, {max(row[2] for row in rows)} workers")
    return rows


STYLE = """
text{font:13px system-ui,sans-serif;fill:#1a1d21}.s{font-size:11px;fill:#5b6270}
path{fill:none;stroke:#d5d9df;stroke-width:1}.n{stroke:#b3261e;stroke-width:2}
.w{stroke:#0b57d0;stroke-width:2}
@media(prefers-color-scheme:dark){text{fill:#e6e9ee}.s{fill:#a0a6ad}path{stroke:#333a44}
.n{stroke:#f2b8b5}.w{stroke:#8ab4f8}}
"""


def draw(all_rows):
    """Memory above, workers below."""
    end = (RELOADS + 1) * EVERY_S
    lines = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 720 420" role="img" '
             'aria-labelledby="t">',
             '<title id="t">Memory and workers through ten reloads with open WebSockets: both '
             "grow with each reload in nginx, and stay in Weir.</title>", f"<style>{STYLE}</style>"]
    for column, top, height, what in [(1, 30, 210, "memory of all processes, MB"),
                                      (2, 290, 100, "workers")]:
        most = max(row[column] for rows in all_rows.values() for row in rows)
        step = next(s for s in (1, 2, 5, 10, 20, 50, 100, 200, 500) if most / s <= 5)
        scale = step * (most // step + 1)
        x = lambda t: 50 + t / end * 590
        y = lambda v: top + height - v / scale * height
        lines.append(f'<text x="50" y="{top - 10}">{what}</text>')
        for value in range(0, int(scale) + 1, step):
            lines.append(f'<path d="M50 {y(value):.0f}H640"/><text class="s" x="44" '
                         f'y="{y(value) + 4:.0f}" text-anchor="end">{value}</text>')
        for name, rows in all_rows.items():
            points = " ".join(f"{x(row[0]):.1f} {y(row[column]):.1f}" for row in rows)
            lines.append(f'<path class="{name[0].lower()}" d="M{points}"/>'
                         f'<text x="646" y="{y(rows[-1][column]) + 4:.0f}">{name}</text>')
    for reload in range(1, RELOADS + 1):
        lines.append(f'<text class="s" x="{50 + reload * EVERY_S / end * 590:.0f}" y="406" '
                     f'text-anchor="middle">reload {reload}</text>')
    return "\n".join(lines + ["</svg>", ""])


def main():
    weir, nginx, svg = sys.argv[1:]
    rows = {"nginx": measure(nginx, "nginx"), "Weir": measure(weir, "Weir")}
    Path(svg).write_text(draw(rows))


if __name__ == "__main__":
    main()
