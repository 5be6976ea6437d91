"""`penstock text --jsonl` as a Python object: one process, one request a line."""

import json
import subprocess


class TextFilter:
    def __init__(self, bin_dir):
        command = [str(bin_dir / "penstock"), "text", "--jsonl"]
        if not (bin_dir / "penstock").exists():  # the tests' own binary is the same filter without templates
            command = [str(bin_dir.parent / "tests/text_jsonl")]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self):
        self._process.stdin.close()
        assert self._process.wait(timeout=60) == 0

    def ask(self, **request):
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        assert line, f"penstock text ended (code {self._process.poll()}) at {str(request)[:300]}"
        return json.loads(line)

    def ask_all(self, requests):
        """Answers in order; writes in slices, so that neither pipe fills up."""
        answers = []
        for i in range(0, len(requests), 8):
            part = requests[i:i + 8]
            self._process.stdin.write(b"".join(json.dumps(request).encode() + b"\n" for request in part))
            self._process.stdin.flush()
            for request in part:
                line = self._process.stdout.readline()
                assert line, f"penstock text ended (code {self._process.poll()}) near {str(request)[:300]}"
                answers.append(json.loads(line))
        return answers

    def load(self, path):
        answer = self.ask(op="load", path=str(path))
        assert answer == {"ok": True}, answer

    def encode(self, text, add_special=False, plain=False):
        answer = self.ask(op="encode", text=text, add_special=add_special, plain=plain)
        assert "ids" in answer, answer
        return answer["ids"]

    def decode(self, ids, skip_special=True):
        answer = self.ask(op="decode", ids=ids, skip_special=skip_special)
        assert "text" in answer, answer
        return answer["text"]

    def stream(self, ids):
        answer = self.ask(op="stream", ids=ids)
        assert "deltas" in answer, answer
        return answer["deltas"]
