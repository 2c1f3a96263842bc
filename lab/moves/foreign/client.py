"""Sessions of `websockets`: client.py URL SESSIONS. Prints `ready`, and the events at SIGTERM."""

import asyncio
import collections
import json
import signal
import ssl
import sys

import websockets

URL, SESSIONS = sys.argv[1], int(sys.argv[2])
SUITES = ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-AES256-GCM-SHA384",
          "ECDHE-ECDSA-CHACHA20-POLY1305", None]
counts = dict(sessions=SESSIONS, messages=0, wrong=0, closed=0)
used = collections.Counter()


def context(suite):
    """TLS 1.2 with the suite; 1.3, whose suites this module cannot choose, without."""
    made = ssl.create_default_context()
    made.check_hostname, made.verify_mode = False, ssl.CERT_NONE
    if suite:
        made.maximum_version = ssl.TLSVersion.TLSv1_2
        made.set_ciphers(suite)
    else:
        made.minimum_version = ssl.TLSVersion.TLSv1_3
    return made


async def session(i, made, few, opened, stop):
    try:
        async with few:
            ws = await websockets.connect(URL, ssl=made, ping_interval=5, open_timeout=60)
        used[ws.transport.get_extra_info("cipher")[0]] += 1
        opened[0] += 1
        if opened[0] == SESSIONS:
            print("ready", flush=True)
        k = 0
        while not stop.is_set():
            message = f"{i}:{k}:" + "y" * (k * 797 % 5000)
            k += 1
            await ws.send(message)
            answer = await asyncio.wait_for(ws.recv(), 20)
            counts["messages" if answer == message else "wrong"] += 1
            await asyncio.sleep(0.5)
        await ws.close()
    except Exception as error:  # whatever it is, the session has failed
        counts["closed"] += 1
        print("websockets:", repr(error), file=sys.stderr, flush=True)


async def main():
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    made, few, opened = [context(suite) for suite in SUITES], asyncio.Semaphore(50), [0]
    await asyncio.gather(*(session(i, made[i % 4], few, opened, stop) for i in range(SESSIONS)))
    print(json.dumps(counts | {"suites": used}), flush=True)


asyncio.run(main())
