"""A server with as much of S3's protocol as checkpoints, events and datasets need, for tests.

It keeps objects in memory, or hands every request on to a real server. Requests can be held, so that a test can kill their
sender at a known place.
"""

import email.utils
import hashlib
import http.client
import http.server
import re
import threading
import time
import urllib.parse
from xml.sax.saxutils import escape

ACCESS_KEY, SECRET_KEY = "AKIAFERROFLOWTEST", "a-secret-that-no-log-may-show"


class Held:
    """Requests that are answered only once they are released."""

    def __init__(self, matches):
        self.matches = matches
        self.arrived = threading.Event()
        self.released = threading.Event()


class ObjectStore(http.server.ThreadingHTTPServer):
    """Serves buckets on loopback until it is stopped; `behind` is the address of a server that answers in its place."""

    daemon_threads = True

    def __init__(self, behind=None):
        super().__init__(("127.0.0.1", 0), Handler)
        self.behind = behind
        self.lock = threading.Lock()
        self.objects = {}
        self.uploads = {}
        self.requests = []
        self.held = None
        self.refuses = False
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def endpoint(self):
        return "http://127.0.0.1:%d" % self.server_address[1]

    @property
    def env(self):
        return {
            "AWS_ENDPOINT": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_REGION": "us-east-1",
            "AWS_ACCESS_KEY_ID": ACCESS_KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET_KEY,
        }

    def handle_error(self, request, client_address):
        """Says nothing: a client that is killed breaks its connections."""

    def stop(self):
        if self.held:
            self.held.released.set()
        self.shutdown()
        self.server_close()

    def hold(self, matches):
        """Holds the requests from now on for which `matches(method, path)` is true."""
        self.held = Held(matches)
        return self.held

    def request(self, method, path, body=b""):
        """Sends a request to this server, and returns the body of the answer."""
        connection = http.client.HTTPConnection("127.0.0.1", self.server_address[1], timeout=60)
        # A real server shows its objects to nobody without a key; those for tests don't compare signatures.
        headers = {"Authorization": f"AWS {ACCESS_KEY}:unsigned"}
        connection.request(method, urllib.parse.quote(path, safe="/?=&"), body, headers)
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        assert answer.status < 300, (method, path, answer.status, content)
        return content

    def put(self, path, body):
        self.request("PUT", path, body)

    def get(self, path):
        return self.request("GET", path)

    def names(self, bucket):
        listing = self.request("GET", f"/{bucket}?list-type=2").decode()
        return sorted(urllib.parse.unquote(name) for name in re.findall("<Key>(.*?)</Key>", listing))


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments):
        pass

    def serve(self):
        store = self.server
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        store.requests.append((self.command, self.path))
        held = store.held
        if held and held.matches(self.command, self.path):
            held.arrived.set()
            held.released.wait()
            self.close_connection = True
            return
        if store.refuses:
            # As S3 does, with what the request was signed with.
            refusal = f"<Error><Code>InvalidAccessKeyId</Code><AWSAccessKeyId>{ACCESS_KEY}</AWSAccessKeyId></Error>"
            self.answer(403, refusal)
            return
        if store.behind:
            self.hand_on(store.behind, body)
            return
        with store.lock:
            self.answer(*self.work(body))

    do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = serve

    def hand_on(self, behind, body):
        connection = http.client.HTTPConnection(*behind, timeout=60)
        # The signature is over the address that the client knows.
        connection.request(self.command, self.path, body, dict(self.headers))
        answer = connection.getresponse()
        content = answer.read()
        self.send_response(answer.status)
        for name, value in answer.getheaders():
            if name.lower() not in ("transfer-encoding", "connection", "date", "server", "content-length"):
                self.send_header(name, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else len(content)
        self.send_header("Content-Length", length or 0)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)
        connection.close()

    def answer(self, status, content=b"", headers=()):
        if isinstance(content, str):
            content = ('<?xml version="1.0" encoding="UTF-8"?>' + content).encode()
        self.send_response(status)
        headers = dict(headers)
        headers.setdefault("Content-Length", len(content))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(content)

    def work(self, body):
        address = urllib.parse.urlsplit(self.path)
        query = dict(urllib.parse.parse_qsl(address.query, keep_blank_values=True))
        bucket, _, key = urllib.parse.unquote(address.path).lstrip("/").partition("/")
        if not key:
            return self.on_bucket(bucket, query, body)
        name = (bucket, key)
        method = {"GET": self.read, "HEAD": self.read, "PUT": self.write, "POST": self.upload, "DELETE": self.delete}
        return method[self.command](name, query, body)

    def on_bucket(self, bucket, query, body):
        if self.command == "PUT":
            return (200,)
        if "delete" in query:
            keys = re.findall(r"<Key>(.*?)</Key>", body.decode())
            for key in keys:
                self.server.objects.pop((bucket, key), None)
            return 200, "<DeleteResult>%s</DeleteResult>" % "".join(
                f"<Deleted><Key>{key}</Key></Deleted>" for key in keys)
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        files, directories = [], set()
        for (where, key), content in sorted(self.server.objects.items()):
            if where != bucket or not key.startswith(prefix):
                continue
            rest = key[len(prefix):]
            if delimiter and delimiter in rest:
                directories.add(prefix + rest[:rest.index(delimiter) + 1])
            else:
                files.append(
                    f"<Contents><Key>{escape(key)}</Key><LastModified>2026-01-02T03:04:05.000Z</LastModified>"
                    f"<ETag>{tag(content)}</ETag><Size>{len(content)}</Size></Contents>")
        files += [f"<CommonPrefixes><Prefix>{escape(one)}</Prefix></CommonPrefixes>" for one in sorted(directories)]
        return 200, f"<ListBucketResult><IsTruncated>false</IsTruncated>{''.join(files)}</ListBucketResult>"

    def read(self, name, query, body):
        content = self.server.objects.get(name)
        if content is None:
            return 404, "<Error><Code>NoSuchKey</Code></Error>"
        if self.headers.get("If-Match", tag(content)) != tag(content):
            return 412, "<Error><Code>PreconditionFailed</Code></Error>"
        headers = {"ETag": tag(content), "Last-Modified": email.utils.formatdate(time.time(), usegmt=True)}
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if part:
            start, end = int(part[1]), min(int(part[2]) + 1, len(content))
            if start >= len(content):
                return 416, "<Error><Code>InvalidRange</Code></Error>"
            headers["Content-Range"] = f"bytes {start}-{end - 1}/{len(content)}"
            return 206, content[start:end], headers
        headers["Content-Length"] = len(content)
        return 200, content, headers

    def write(self, name, query, body):
        objects = self.server.objects
        if "uploadId" in query:
            self.server.uploads[query["uploadId"]][int(query["partNumber"])] = body
            return 200, b"", {"ETag": tag(body)}
        if self.headers.get("If-None-Match") == "*" and name in objects:
            return 412, "<Error><Code>PreconditionFailed</Code></Error>"
        if "x-amz-copy-source" in self.headers:
            source = urllib.parse.unquote(self.headers["x-amz-copy-source"]).lstrip("/").partition("/")
            objects[name] = objects[source[0], source[2]]
            return 200, f"<CopyObjectResult><ETag>{tag(objects[name])}</ETag></CopyObjectResult>"
        objects[name] = body
        return 200, b"", {"ETag": tag(body)}

    def upload(self, name, query, body):
        uploads = self.server.uploads
        if "uploads" in query:
            made = str(len(uploads) + 1)
            uploads[made] = {}
            return 200, (f"<InitiateMultipartUploadResult><Bucket>{name[0]}</Bucket><Key>{escape(name[1])}</Key>"
                         f"<UploadId>{made}</UploadId></InitiateMultipartUploadResult>")
        parts = uploads.pop(query["uploadId"])
        self.server.objects[name] = b"".join(parts[number] for number in sorted(parts))
        return 200, (f"<CompleteMultipartUploadResult><Location>x</Location><Bucket>{name[0]}</Bucket>"
                     f"<Key>{escape(name[1])}</Key><ETag>{tag(self.server.objects[name])}</ETag>"
                     "</CompleteMultipartUploadResult>")

    def delete(self, name, query, body):
        if "uploadId" in query:
            self.server.uploads.pop(query["uploadId"], None)
        else:
            self.server.objects.pop(name, None)
        return (204,)


def tag(content):
    return '"%s"' % hashlib.md5(content).hexdigest()
