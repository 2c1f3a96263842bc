"""Connects again and again, asks for a page, and prints it, or the error.

Arguments: address, version (1.2, 1.3), "resumed" or "fresh", number of connections, file of the
authority, and, for a client's certificate, its file and that of its key.
"""
import socket
import ssl
import sys

address, version, kind, count, authority = sys.argv[1:6]
host, port = address.split(":")
context = ssl.create_default_context(cafile=authority)
context.minimum_version = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}[version]
context.maximum_version = context.minimum_version
if len(sys.argv) > 6:
    context.load_cert_chain(sys.argv[6], sys.argv[7])
session = None
for _ in range(int(count)):
    try:
        with socket.create_connection((host, int(port)), timeout=20) as plain:
            with context.wrap_socket(plain, server_hostname="localhost", session=session) as conn:
                conn.sendall(b"GET /tls HTTP/1.0\r\n\r\n")
                answer = b""
                while piece := conn.recv(4096):
                    answer += piece
                if kind == "resumed":
                    session = conn.session
        print(answer.decode().strip().splitlines()[-1])
    except (OSError, IndexError) as e:
        print("error:", e)
