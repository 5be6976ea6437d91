"""A model hub for tests: the API, file metadata and redirects of the real one, with a second port
as the content server, and faults on demand."""

import hashlib
import http.server
import json
import threading
import time
import urllib.parse


def git_sha1(data):
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


class FakeHub:
    """Repositories and what goes wrong. Large files (lfs) are served by the content port."""

    def __init__(self):
        self.repos = {}  # "org/name" -> {"commit": ..., "files": {name: bytes}, "lfs": {names}}
        self.requests = []  # (port kind, method, path, headers)
        self.tokens = set()  # when not empty, one of them is needed
        self.gated = set()
        self.break_after = {}  # file -> list: bytes to send before the connection closes, per try
        self.corrupt = set()  # files whose content is not what the sha256 says
        self.stall = {}  # file -> seconds of silence in the middle, once
        self.answer = {}  # path prefix -> list of statuses to answer before working
        self.ignore_range = set()
        self.renamed = {}  # old "org/name" -> new
        self.hub = self._serve("hub")
        self.cdn = self._serve("cdn")

    def add(self, repo, files, lfs=(), commit="a" * 40):
        self.repos[repo] = {"commit": commit, "files": files, "lfs": set(lfs)}

    @property
    def url(self):
        return f"http://127.0.0.1:{self.hub.server_port}"

    def close(self):
        for server in (self.hub, self.cdn):
            server.shutdown()
            server.server_close()

    def gets(self, name, kind="cdn"):
        return [r for r in self.requests if r[0] == kind and r[1] == "GET" and name in r[2]]

    def _serve(self, kind):
        fake = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *args):
                pass

            def do_GET(self):
                fake._handle(kind, self)

            def do_HEAD(self):
                fake._handle(kind, self)

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server

    # -- answers

    def _send(self, request, status, headers=None, body=b""):
        request.send_response(status)
        for key, value in (headers or {}).items():
            request.send_header(key, value)
        if "Content-Length" not in (headers or {}):
            request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        if request.command != "HEAD":
            request.wfile.write(body)

    def _refuse(self, request, status, code, message=""):
        self._send(request, status, {"X-Error-Code": code, "X-Error-Message": message})

    def _handle(self, kind, request):
        path = urllib.parse.unquote(request.path)
        self.requests.append((kind, request.command, path, dict(request.headers)))
        for prefix, statuses in self.answer.items():
            if path.startswith(prefix) and statuses:
                return self._send(request, statuses.pop(0))
        if kind == "cdn":
            repo, name = path[1:].split("//", 1)
            return self._content(request, self.repos[repo], name.split("?")[0])
        return self._hub(request, path)

    def _hub(self, request, path):
        parts = path.split("?")[0].strip("/").split("/")
        api = parts[:2] == ["api", "models"]
        repo_id = "/".join(parts[2:4] if api else parts[:2])
        if repo_id in self.renamed:
            new = path.replace(repo_id, self.renamed[repo_id])
            return self._send(request, 307, {"Location": new})
        token = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if token and self.tokens and token not in self.tokens:
            return self._refuse(request, 401, "", "Invalid credentials in Authorization header")
        repo = self.repos.get(repo_id)
        if repo is None or (self.tokens and not token and repo_id not in self.gated):
            return self._refuse(request, 401 if not token else 404, "RepoNotFound",
                                "Repository not found")
        if api and parts[4:5] == ["tree"]:
            return self._tree(request, repo)
        if api:
            revision = "/".join(parts[5:])
            if revision not in ("main", repo["commit"], "refs/pr/1", ""):
                return self._refuse(request, 404, "RevisionNotFound", "Invalid rev id")
            files = [{"rfilename": name} for name in repo["files"]]
            body = json.dumps({"id": repo_id, "sha": repo["commit"], "siblings": files}).encode()
            return self._send(request, 200, {"Content-Type": "application/json"}, body)
        name = "/".join(parts[4:])
        if repo_id in self.gated and token not in self.tokens:
            return self._refuse(request, 401, "GatedRepo", f"Access to {repo_id} is restricted")
        if name not in repo["files"]:
            return self._refuse(request, 404, "EntryNotFound", "Entry not found")
        data = repo["files"][name]
        headers = {"X-Repo-Commit": repo["commit"], "ETag": f'"{git_sha1(data)}"'}
        if name not in repo["lfs"]:
            return self._content(request, repo, name, headers)
        headers |= {
            "X-Linked-Etag": f'"{hashlib.sha256(data).hexdigest()}"',
            "X-Linked-Size": str(len(data)),
            "Location": f"http://127.0.0.1:{self.cdn.server_port}/{repo_id}//{name}?sign=x%2Fy",
        }
        return self._send(request, 302, headers)

    def _tree(self, request, repo):
        """What the huggingface_hub package asks for besides."""
        entries = []
        for name, data in repo["files"].items():
            entry = {"type": "file", "path": name, "size": len(data), "oid": git_sha1(data)}
            if name in repo["lfs"]:
                entry["lfs"] = {"oid": hashlib.sha256(data).hexdigest(), "size": len(data),
                                "pointerSize": 130}
            entries.append(entry)
        body = json.dumps(entries).encode()
        return self._send(request, 200, {"Content-Type": "application/json"}, body)

    def _content(self, request, repo, name, headers=None):
        data = repo["files"][name]
        if name in self.corrupt:
            data = b"x" + data[1:]
        headers = dict(headers or {})
        begin, status = 0, 200
        wanted = request.headers.get("Range")
        if wanted and name not in self.ignore_range:
            begin, status = int(wanted.removeprefix("bytes=").removesuffix("-")), 206
            headers["Content-Range"] = f"bytes {begin}-{len(data) - 1}/{len(data)}"
        headers["Content-Length"] = str(len(data) - begin)
        if request.command == "HEAD":
            return self._send(request, status, headers)
        body = data[begin:]
        cut = self.break_after.get(name)
        if cut:
            self._send(request, status, headers, body[: cut.pop(0)])
            request.wfile.flush()
            request.close_connection = True
            return None
        pause = self.stall.pop(name, None)
        if pause:
            self._send(request, status, headers, body[: len(body) // 2])
            request.wfile.flush()
            time.sleep(pause)
            request.close_connection = True
            return None
        return self._send(request, status, headers, body)
