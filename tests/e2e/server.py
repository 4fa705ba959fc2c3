#!/usr/bin/env python3
"""server.py TESSERA PLUGIN_FOLDER: the built server as its clients meet it. Prints its seed."""
import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request

tessera, plugins = sys.argv[1], sys.argv[2]
SEED, REQUESTS = 20261201, 500


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


port = free_port()
URL = f"http://127.0.0.1:{port}"


def call(path, body=None, timeout=60):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(URL + path, data, {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=timeout) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def metric(name):
    for _ in range(200):
        status, text = call("/metrics")
        if status != 503:  # as long as the storm holds every connection that server.max_connections allows
            break
        time.sleep(0.05)
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
    assert found, f"/metrics answered {status} without {name}: {text[:200]}"
    return float(found.group(1))


def chat(text, **more):
    return {"model": "tessera-dense", "messages": [{"role": "user", "content": text}], **more}


def raw_request(body):
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(data)}\r\n\r\n"
    connection = socket.create_connection(("127.0.0.1", port))
    connection.sendall(head.encode() + data)
    return connection


def wait_until(condition, what, seconds=60):
    deadline = time.time() + seconds
    while not condition():
        assert time.time() < deadline, f"{what} did not happen within {seconds} s"
        time.sleep(0.05)


def disconnect_storm():
    rng = random.Random(SEED)
    before = metric('tessera_requests_ended_total{outcome="cancelled"}')
    pauses = [rng.random() * 0.3 for _ in range(REQUESTS)]

    def one(i):
        connection = raw_request(chat(f"Tell me a story about {i} foxes.", stream=i % 2 == 0, max_tokens=150))
        time.sleep(pauses[i])
        connection.close()

    threads = [threading.Thread(target=one, args=(i,)) for i in range(REQUESTS)]
    for i, thread in enumerate(threads):
        thread.start()
        if i % 20 == 19:
            time.sleep(0.05)
    for thread in threads:
        thread.join()
    wait_until(lambda: metric("tessera_sequences_running") + metric("tessera_sequences_waiting") == 0, "an idle engine")
    cancelled = metric('tessera_requests_ended_total{outcome="cancelled"}') - before
    assert cancelled > 50, f"the storm only cancelled {cancelled} requests"
    assert metric("tessera_kv_pages_in_use") == 0, "pages stay in use"
    print(f"storm of {REQUESTS} (seed {SEED}): {cancelled:.0f} cancelled, 0 pages in use")


def open_streams_leave_health_free():
    streams = [raw_request(chat("Tell me a story.", stream=True, max_tokens=400, temperature=1)) for _ in range(64)]
    start = time.time()
    assert call("/health", timeout=5)[0] == 200
    print(f"/health beside 64 open streams: {(time.time() - start) * 1e3:.0f} ms")
    for stream in streams:
        stream.close()
    wait_until(lambda: metric("tessera_kv_pages_in_use") == 0, "an empty pool")


def refusals():
    status, body = call("/v1/chat/completions", chat("word " * 3000))
    assert status == 400 and json.loads(body)["error"]["code"] == "context_length_exceeded", (status, body)
    status, body = call("/v1/chat/completions", chat("hi", temperature="hot"))
    assert status == 400 and json.loads(body)["error"]["param"] == "temperature", (status, body)


def run_with(*arguments):
    return subprocess.run([tessera, "run", "--chat", "What is 18 plus 72?", *arguments], capture_output=True, text=True)


def swapping():
    given = run_with("--set", f"attention.path={plugins}/attention/attention_reference.cpu.so")
    assert given.stdout == "90", given
    for arguments, words in [
        (["--set", "attention.name=attention_referense"], "did you mean 'attention_reference'"),
        (["--set", "cache.page=3"], "did you mean 'pages'"),
        (["--set", "scheduler.max_batch=many"], "wanted a whole number"),
        (["--set", "backend.options.thread=2"], "did you mean 'threads'"),
        (["--config", "configs/none.yaml"], "configs/none.yaml: cannot be read"),
    ]:
        refused = run_with(*arguments)
        assert refused.returncode == 1 and words in refused.stderr, (arguments, refused)


server = subprocess.Popen([tessera, "serve", "--port", str(port)], stderr=subprocess.PIPE, text=True)
threading.Thread(target=lambda: [None for _ in server.stderr], daemon=True).start()
try:
    def healthy():
        assert server.poll() is None, "the server ended before it was ready"
        try:
            return call("/health")[0] == 200
        except OSError:
            return False
    wait_until(healthy, "a healthy server")
    greedy = json.loads(call("/v1/chat/completions", chat("What is 18 plus 72?", temperature=0))[1])
    assert greedy["choices"][0]["message"]["content"] == "90", greedy
    refusals()
    open_streams_leave_health_free()
    disconnect_storm()
    server.send_signal(signal.SIGTERM)
    assert server.wait(60) == 0, f"SIGTERM ended in {server.returncode}"
finally:
    server.kill()
swapping()
print("ok")
