"""The hub download against a fake hub: layout, resume, faults, messages; and the same cache read
and written by the real huggingface_hub package."""

import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from fake_hub import FakeHub

REPO = "some-org/tiny.model"
COMMIT = "0123456789abcdef0123456789abcdef01234567"
CONFIG = json.dumps({
    "architectures": ["LlamaForCausalLM"], "vocab_size": 10, "hidden_size": 16,
    "intermediate_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4}).encode()
WEIGHTS = bytes(range(256)) * 8000  # 2 MB
FILES = {
    "config.json": CONFIG,
    "tokenizer.json": b'{"model": {}}',
    "generation_config.json": b"{}",
    "additional_chat_templates/tool_use.jinja": b"tools",
    "model.safetensors": WEIGHTS,
    "pytorch_model.bin": b"pickle",
    "original/consolidated.00.pth": b"pickle",
    "README.md": b"hello",
}
WANTED = {"config.json", "tokenizer.json", "generation_config.json", "model.safetensors",
          "additional_chat_templates/tool_use.jinja"}


@pytest.fixture
def hub():
    fake = FakeHub()
    fake.add(REPO, dict(FILES), lfs={"model.safetensors"}, commit=COMMIT)
    yield fake
    fake.close()


@pytest.fixture
def environment(hub, tmp_path):
    env = {k: v for k, v in os.environ.items() if not k.startswith(("HF_", "HUGGING"))}
    env.update(HOME=str(tmp_path), HF_HOME=str(tmp_path / "hf"), HF_ENDPOINT=hub.url,
               HUB_FETCH_BACKOFF_MS="1", HUB_FETCH_IDLE_MS="5000")
    env.pop("XDG_CACHE_HOME", None)
    return env


@pytest.fixture
def start(bin_dir, environment):
    def run(*arguments, **changes):
        command = [bin_dir / "hub_fetch", *arguments]
        return subprocess.Popen(command, env=environment | changes, stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)
    return run


@pytest.fixture
def fetch(start):
    def run(*arguments, **changes):
        process = start(*arguments, **changes)
        process.out, process.err = process.communicate(timeout=120)
        return process
    return run


@pytest.fixture
def cache(tmp_path):
    return tmp_path / "hf" / "hub" / "models--some-org--tiny.model"


def path_of(done):
    assert done.returncode == 0, done.err
    return pathlib.Path(done.out.splitlines()[0])


def error_of(done):
    assert done.returncode == 3, done.out + done.err
    return done.err.splitlines()[-1]


def content(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def check_complete(folder):
    assert content(folder) == {name: FILES[name] for name in WANTED}


def test_layout_and_files(hub, fetch, cache):
    done = fetch(REPO)
    folder = path_of(done)
    assert done.out.splitlines()[1:] == [REPO, COMMIT]
    assert folder == cache / "snapshots" / COMMIT
    check_complete(folder)
    assert (cache / "refs" / "main").read_text() == COMMIT
    link = os.readlink(folder / "model.safetensors")
    assert link == "../../blobs/" + hashlib.sha256(WEIGHTS).hexdigest()
    nested = os.readlink(folder / "additional_chat_templates" / "tool_use.jinja")
    assert nested.startswith("../../../blobs/")
    assert not list((cache / "blobs").glob("*.incomplete"))
    # Small files first, weights last; nothing is fetched that is not needed.
    got = [r[2] for r in hub.requests if r[1] == "GET"]
    assert got[-1].split("?")[0].endswith("model.safetensors")
    assert not any("pytorch_model" in path or ".pth" in path for path in got)


def test_second_time_asks_only_for_the_commit(hub, fetch):
    path_of(fetch(REPO))
    hub.requests.clear()
    path_of(fetch(REPO))
    assert [r[2] for r in hub.requests] == [f"/api/models/{REPO}/revision/main"]
    hub.requests.clear()
    path_of(fetch(REPO, COMMIT))
    assert hub.requests == []


def test_revision(hub, fetch, cache):
    path_of(fetch(REPO, "refs/pr/1"))
    assert (cache / "refs" / "refs" / "pr" / "1").read_text() == COMMIT
    assert any(r[2].endswith("/revision/refs/pr/1") for r in hub.requests)
    assert f"NOT_FOUND: {REPO} has no revision v9" in error_of(fetch(REPO, "v9"))
    assert "--revision is '../x'" in error_of(fetch(REPO, "../x"))


def test_broken_connection_resumes(hub, fetch):
    hub.break_after["model.safetensors"] = [700_000, 500_000]
    done = fetch(REPO)
    check_complete(path_of(done))
    ranges = [r[3].get("Range") for r in hub.gets("model.safetensors")]
    assert ranges == [None, "bytes=700000-", "bytes=1200000-"]
    assert "trying again" in done.err


def test_next_start_resumes(hub, fetch, cache):
    hub.break_after["model.safetensors"] = [1_000_000] + [0] * 20
    error = error_of(fetch(REPO))
    assert error.startswith("UNAVAILABLE") and "without progress" in error
    partial = cache / "blobs" / (hashlib.sha256(WEIGHTS).hexdigest() + ".incomplete")
    assert partial.stat().st_size == 1_000_000
    hub.break_after.clear()
    hub.requests.clear()
    done = fetch(REPO)
    check_complete(path_of(done))
    assert "resuming at 1 MB" in done.err
    assert [r[3].get("Range") for r in hub.gets("model.safetensors")] == ["bytes=1000000-"]


def test_server_without_ranges(hub, fetch):
    hub.break_after["model.safetensors"] = [700_000]
    hub.ignore_range.add("model.safetensors")
    check_complete(path_of(fetch(REPO)))


def test_silence_is_a_broken_connection(hub, fetch):
    hub.stall["model.safetensors"] = 4
    done = fetch(REPO, HUB_FETCH_IDLE_MS="500")
    check_complete(path_of(done))
    assert "timed out" in done.err


def test_wrong_sha_is_refused_and_removed(hub, fetch, cache):
    hub.corrupt.add("model.safetensors")
    error = error_of(fetch(REPO))
    actual = hashlib.sha256(b"x" + WEIGHTS[1:]).hexdigest()
    announced = hashlib.sha256(WEIGHTS).hexdigest()
    assert error.startswith("DATA_LOSS: model.safetensors is damaged")
    assert actual in error and announced in error
    assert not (cache / "snapshots" / COMMIT / "model.safetensors").exists()
    assert not (cache / "blobs" / (announced + ".incomplete")).exists()
    hub.corrupt.clear()
    check_complete(path_of(fetch(REPO)))


def test_token_goes_to_the_hub_only(hub, fetch, tmp_path):
    hub.tokens.add("secret")
    check_complete(path_of(fetch(REPO, HF_TOKEN="secret")))
    for kind, _, path, headers in hub.requests:
        assert headers.get("Authorization") == (None if kind == "cdn" else "Bearer secret"), path
    hub.requests.clear()
    (tmp_path / "hf" / "token").write_text("secret\n")
    path_of(fetch(REPO))
    assert hub.requests[0][3]["Authorization"] == "Bearer secret"


def test_refusals_name_the_remedy(hub, fetch):
    assert re.search(r"NOT_FOUND: http://\S+ has no model 'no/such' that you can see: check the "
                     r"name; for a private or gated model set HF_TOKEN", error_of(fetch("no/such")))
    hub.tokens.add("secret")
    assert "refuses the token that is in use" in error_of(fetch(REPO, HF_TOKEN="wrong"))
    assert "set HF_TOKEN" in error_of(fetch(REPO))
    hub.gated.add(REPO)
    error = error_of(fetch(REPO))
    assert f"PERMISSION_DENIED: {REPO} is a gated model: accept its conditions at {hub.url}/{REPO}"\
        in error and "HF_TOKEN" in error
    hub.answer[f"/api/models/{REPO}"] = [403]
    assert "may not be read with this token" in error_of(fetch(REPO, HF_TOKEN="secret"))


def test_server_errors_are_retried(hub, fetch):
    hub.answer[f"/api/models/{REPO}"] = [503, 429]
    hub.answer[f"/{REPO}/resolve"] = [500]
    done = fetch(REPO)
    check_complete(path_of(done))
    assert done.err.count("trying again") == 3


def test_unreachable_hub(fetch, cache):
    done = fetch(REPO, HF_ENDPOINT="http://127.0.0.1:9")
    assert "UNAVAILABLE: cannot connect to 127.0.0.1:9" in error_of(done)
    path_of(fetch(REPO))
    done = fetch(REPO, HF_ENDPOINT="http://127.0.0.1:9")
    assert path_of(done) == cache / "snapshots" / COMMIT
    assert f"serving the cached commit {COMMIT}" in done.err


def test_offline(hub, fetch):
    error = error_of(fetch(REPO, HF_HUB_OFFLINE="1"))
    assert "HF_HUB_OFFLINE is set, and revision main" in error and "is not in the cache" in error
    folder = path_of(fetch(REPO))
    hub.requests.clear()
    assert path_of(fetch(REPO, HF_HUB_OFFLINE="yes")) == folder
    assert hub.requests == []
    (folder / "tokenizer.json").unlink()
    error = error_of(fetch(REPO, HF_HUB_OFFLINE="1"))
    assert "cannot be served from the cache" in error and "the tokenizer is not in" in error


def test_sharded(hub, fetch):
    shards = {"model-00001-of-00002.safetensors": b"a" * 1000,
              "model-00002-of-00002.safetensors": b"b" * 1000}
    index = json.dumps({"weight_map": {"x": "model-00001-of-00002.safetensors",
                                       "y": "model-00002-of-00002.safetensors"}}).encode()
    files = {"config.json": CONFIG, "model.safetensors.index.json": index, **shards,
             "model-00009-of-00002.safetensors": b"unused"}
    hub.add(REPO, files, lfs=set(shards), commit=COMMIT)
    got = content(path_of(fetch(REPO)))
    assert set(got) == {"config.json", "model.safetensors.index.json", *shards}


def test_unsupported_models_are_refused_before_their_weights(hub, fetch):
    files = FILES | {"config.json": CONFIG.replace(b"LlamaFor", b"MambaFor")}
    hub.add(REPO, files, lfs={"model.safetensors"}, commit=COMMIT)
    assert "architectures is 'MambaForCausalLM', which is not supported" in error_of(fetch(REPO))
    assert hub.gets("model.safetensors") == []


@pytest.mark.parametrize("variant, file", [
    ("", "tiny-Q4_K_M.gguf"), (":q8_0", "tiny-Q8_0.gguf"), (":tiny-Q8_0.gguf", "tiny-Q8_0.gguf"),
    (":F16", "F16/tiny.gguf")])
def test_gguf(hub, fetch, variant, file):
    ggufs = {"tiny-Q4_K_M.gguf": b"4", "tiny-Q8_0.gguf": b"8", "F16/tiny.gguf": b"16"}
    hub.add(REPO, {"README.md": b"x", "config.json": b"{}", **ggufs}, lfs=set(ggufs), commit=COMMIT)
    done = fetch(REPO + variant)
    assert path_of(done).read_bytes() == ggufs[file]
    assert done.out.splitlines()[1] == REPO
    snapshot = path_of(done).parent if "/" not in file else path_of(done).parent.parent
    assert set(content(snapshot)) == {file}


def test_gguf_refusals(hub, fetch):
    hub.add(REPO, {"t-Q8_0.gguf": b"8", "t-Q5_0.gguf": b"5"}, commit=COMMIT)
    error = error_of(fetch(REPO))
    assert "no GGUF file for 'Q4_K_M'; name one of t-Q8_0.gguf, t-Q5_0.gguf" in error
    assert "has no file x.gguf; its GGUF files: t-Q8_0.gguf" in error_of(fetch(REPO + ":x.gguf"))
    hub.add(REPO, {"t-Q8_0-00001-of-00002.gguf": b"8"}, commit=COMMIT)
    assert "one part of a split GGUF" in error_of(fetch(REPO))
    hub.add(REPO, {"pytorch_model.bin": b"8"}, commit=COMMIT)
    assert "PyTorch pickle files" in error_of(fetch(REPO))


def test_hostile_names(hub, fetch, tmp_path):
    hub.add(REPO, FILES | {"../../../evil.tiktoken": b"x"}, commit=COMMIT)
    assert "is no safe relative path" in error_of(fetch(REPO))
    assert not list(tmp_path.rglob("evil*"))


def test_not_a_hub(hub, fetch):
    hub.add(REPO, FILES, commit="short")
    assert "did not answer as a model hub does" in error_of(fetch(REPO))


def test_renamed_repository(hub, fetch):
    hub.renamed["old/name"] = REPO
    check_complete(path_of(fetch("old/name")))


def test_local_paths_and_nonsense(fetch, tmp_path):
    (tmp_path / "m").mkdir()
    done = fetch(str(tmp_path / "m") + "/")
    assert done.out.splitlines()[1:] == ["m", ""]
    assert "--revision is for hub ids" in error_of(fetch(str(tmp_path / "m"), "main"))
    assert "does not exist, and is no hub id" in error_of(fetch("/no/where"))
    assert "does not exist, and is no hub id" in error_of(fetch("a/b/c"))
    assert "HF_ENDPOINT: 'ftp://x'" in error_of(fetch("a/b", HF_ENDPOINT="ftp://x"))


def test_cache_folder_variables(fetch, tmp_path):
    other = tmp_path / "elsewhere"
    assert path_of(fetch(REPO, HF_HUB_CACHE=str(other))).is_relative_to(other)
    folder = path_of(fetch(REPO, HF_HOME="", XDG_CACHE_HOME=str(tmp_path / "x")))
    assert folder.is_relative_to(tmp_path / "x" / "huggingface" / "hub")
    assert path_of(fetch(REPO, HF_HOME="")).is_relative_to(tmp_path / ".cache/huggingface/hub")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_cache_that_cannot_be_written(fetch, tmp_path):
    (tmp_path / "ro").mkdir(mode=0o500)
    assert "HF_HOME names another cache folder" in error_of(
        fetch(REPO, HF_HOME=str(tmp_path / "ro")))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root may mount a small disk")
def test_disk_full(fetch, tmp_path):
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", small])
    if mounted.returncode != 0:
        pytest.skip("cannot mount a tmpfs here")
    try:
        error = error_of(fetch(REPO, HF_HOME=str(small)))
    finally:
        subprocess.run(["umount", small], check=True)
    assert error.startswith("RESOURCE_EXHAUSTED") and "set HF_HOME to a larger disk" in error


def test_two_processes_at_once(hub, start, cache):
    hub.stall["model.safetensors"] = 1  # the first one is slow, then resumes
    processes = [start(REPO) for _ in range(3)]
    for process in processes:
        process.out, process.err = process.communicate(timeout=120)
        check_complete(path_of(process))
    # Not one byte came twice: one request in full (cut in the middle) and its rest.
    assert len(hub.gets("model.safetensors")) == 2
    assert not list((cache / "blobs").glob("*.incomplete"))


def test_progress(fetch, tmp_path):
    lines = fetch(REPO).err
    assert "downloading model.safetensors (2 MB)" in lines and "\033[K" not in lines
    assert re.search(r"model.safetensors: 100% \(2 MB of 2 MB, .*/s\)", lines)
    bar = fetch(REPO, HUB_FETCH_TERMINAL="1", HF_HUB_CACHE=str(tmp_path / "other")).err
    assert "\033[K" in bar and "downloading" not in bar
    assert re.search(r"model.safetensors: 100% \(2 MB of 2 MB, .*/s\)\n", bar)


PYTHON = """
import sys, huggingface_hub
print(huggingface_hub.snapshot_download(sys.argv[1], allow_patterns=sys.argv[2:] or None))
"""


def huggingface(environment, *arguments, **changes):
    pytest.importorskip("huggingface_hub")
    env = environment | {"HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_PROGRESS_BARS": "1"} | changes
    done = subprocess.run([sys.executable, "-c", PYTHON, *arguments], env=env, timeout=120,
                          capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return pathlib.Path(done.stdout.splitlines()[-1])


def test_huggingface_hub_reads_our_cache(hub, fetch, environment):
    folder = path_of(fetch(REPO))
    hub.requests.clear()
    assert huggingface(environment, REPO, HF_HUB_OFFLINE="1") == folder
    assert hub.requests == []


def test_we_read_its_cache(hub, fetch, environment):
    folder = huggingface(environment, REPO)
    assert (folder / "README.md").exists()  # it takes everything
    hub.requests.clear()
    assert path_of(fetch(REPO, HF_HUB_OFFLINE="1")) == folder
    assert path_of(fetch(REPO)) == folder
    assert len(hub.requests) == 1  # the branch's commit


def test_both_fetch_at_once(hub, start, environment, cache):
    hub.stall["model.safetensors"] = 1
    ours = start(REPO)
    theirs = huggingface(environment, REPO, *sorted(WANTED))
    ours.out, ours.err = ours.communicate(timeout=120)
    assert path_of(ours) == theirs
    check_complete(theirs)
