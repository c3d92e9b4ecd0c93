#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A server of Mooncake's HTTP metadata protocol, for the tests: metadata_server.py PORT.

Answers as mooncake.http_metadata_server 0.3.13 does: 400 for a missing or blank key and for a second
PUT of a key with "rpc_meta" in it, 404 for an unknown key, 200 else.
"""
import http.server
import sys
import threading
import urllib.parse

values = {}
lock = threading.Lock()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def answer(self, status, body):
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def handle_request(self, act):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urllib.parse.urlsplit(self.path)
        key = urllib.parse.parse_qs(url.query).get("key", [""])[0]
        if url.path != "/metadata":
            self.answer(404, b"404: Not Found")
        elif not key.strip():
            self.answer(400, b"metadata key is required")
        else:
            with lock:
                self.answer(*act(key, body))

    def do_GET(self):
        self.handle_request(
            lambda key, _: (200, values[key]) if key in values else (404, b"metadata not found"))

    def do_PUT(self):
        def put(key, body):
            if "rpc_meta" in key and key in values:
                return 400, b"Duplicate rpc_meta key not allowed"
            values[key] = body
            return 200, b"metadata updated"
        self.handle_request(put)

    def do_DELETE(self):
        self.handle_request(
            lambda key, _: (404, b"metadata not found") if values.pop(key, None) is None
            else (200, b"metadata deleted"))

    def log_message(self, *_):
        pass


server = http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("the metadata server is ready", flush=True)
server.serve_forever()
