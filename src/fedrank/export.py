"""Trained models that leave fedrank: a PyTorch state dict, ONNX, or a seed and one bit for every edge."""

from __future__ import annotations

import io
import json
import logging
import operator
import struct
import warnings
import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor, nn

from fedrank.data import SOURCES, Inputs, Preprocess, Source, find_source
from fedrank.errors import ConfigError, DataError, FedrankError, RunError
from fedrank.experiment.config import Experiment, NetworkSection
from fedrank.experiment.rundir import RunDirectory, write_output
from fedrank.methods import FRL
from fedrank.methods.frl import FRLState
from fedrank.nn import NETWORKS, Supernetwork, supernetwork
from fedrank.rank import top_count

MAGIC = b"FRLM"
VERSION = 1
HEADER = struct.Struct("<4sBxxxI")
CHECKSUM = struct.Struct("<I")
LARGEST_DESCRIPTION = 2**16
DATA = "fedrank.data"
"""Where an ONNX file says which data it was trained on."""
SUFFIXES = {"torch": ".pt", "onnx": ".onnx", "fedrank": ".frlm"}


@dataclass(frozen=True)
class Portable:
    """A model that can be used without its run: what it computes, and the images that it takes."""

    predict: Callable[[Inputs], NDArray[np.float32]]
    """Returns the logits of a batch of stored images."""
    source: Source


class WithPreprocessing(nn.Module):
    """A network together with the preprocessing of its images."""

    def __init__(self, network: nn.Module, preprocess: Preprocess) -> None:
        super().__init__()
        self.network = network
        self.factor: Tensor
        self.shift: Tensor
        std = torch.tensor(preprocess.std).view(1, -1, 1, 1)
        self.register_buffer("factor", 1 / (preprocess.scale * std))
        self.register_buffer("shift", torch.tensor(preprocess.mean).view(1, -1, 1, 1) / std)

    def forward(self, images: Tensor) -> Tensor:
        """Return the logits of images as they are stored, such as 0 to 255."""
        logits: Tensor = self.network(images * self.factor - self.shift)
        return logits


def export(run: RunDirectory, method: Any, state: Any, to: str, path: Path) -> None:
    """Write the model of a run's state to a file."""
    model, source = method.model(state), find_source(run.experiment.data.name)
    match to:
        case "torch":
            file = io.BytesIO()
            torch.save(model.state_dict(), file)
            write_output(path, file.getbuffer())
        case "onnx":
            write_output(path, onnx_bytes(WithPreprocessing(model, source.preprocess), source))
        case "fedrank":
            if not isinstance(method, FRL):
                raise ConfigError(
                    f"{run.path}: {run.experiment.method.name} trains weights: only rankings have this form"
                )
            write_output(path, compact_bytes(run.experiment, method, state))
        case _:
            raise ConfigError(f"--to {to}: there are {', '.join(SUFFIXES)}")


def onnx_bytes(model: nn.Module, source: Source) -> bytes:
    """Return a model as ONNX. It takes any number of images."""
    try:
        import onnxscript  # noqa: F401  (the exporter needs it)
    except ModuleNotFoundError:
        raise ConfigError("ONNX needs an extra: pip install 'fedrank[onnx]'") from None
    example = torch.zeros(2, *source.shape)
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        program = torch.onnx.export(
            model.eval(),
            (example,),
            dynamo=True,
            verbose=False,
            input_names=["images"],
            output_names=["logits"],
            dynamic_shapes=({0: torch.export.Dim("images")},),
        )
    assert program is not None
    model_proto = program.model_proto
    model_proto.metadata_props.add(key=DATA, value=source.name)
    return bytes(model_proto.SerializeToString())


def compact_bytes(experiment: Experiment, method: FRL, state: FRLState) -> bytes:
    """Return a subnetwork as its network's description, a seed, and one bit for every edge."""
    section = experiment.network
    description = json.dumps(
        {
            "network": section.name,
            "seed": experiment.seed,
            "keep": section.keep,
            "weights": section.weights,
            "data": experiment.data.name,
            "rounds": state.round,
        }
    ).encode()
    bits = np.packbits(method.network.mask(state.ranking)).tobytes()
    body = HEADER.pack(MAGIC, VERSION, len(description)) + description + bits
    return body + CHECKSUM.pack(zlib.crc32(body))


def read_compact(path: Path) -> tuple[nn.Module, Source]:
    """Return the model in a file that `compact_bytes` fills, and the data that it was trained on."""
    try:
        content = path.read_bytes()
        magic, version, length = HEADER.unpack_from(content)
        body, checksum = content[: -CHECKSUM.size], CHECKSUM.unpack(content[-CHECKSUM.size :])[0]
        if (magic, version) != (MAGIC, VERSION) or length > LARGEST_DESCRIPTION:
            raise ValueError("the beginning is not that of a model")
        if zlib.crc32(body) != checksum:
            raise ValueError("the checksum is wrong")
        description = json.loads(body[HEADER.size : HEADER.size + length])
        section = NetworkSection(
            name=description["network"], keep=description["keep"], weights=description["weights"]
        )
        source = find_source(description["data"])
        network = supernetwork(
            NETWORKS[section.name](),
            seed=operator.index(description["seed"]),
            keep=section.keep,
            weights=section.weights,
        )
        mask = _mask(network, body[HEADER.size + length :])
        model = network.with_weights(np.where(mask, network.weights, np.float32(0)))
        _check_takes(model, source)
    except FileNotFoundError:
        raise RunError(f"{path}: there is no such file") from None
    except (OSError, ValueError, KeyError, TypeError, RecursionError, struct.error, FedrankError) as error:
        raise RunError(f"{path}: this is no model of fedrank's ({error})") from error
    return model, source


def _check_takes(model: nn.Module, source: Source) -> None:
    try:
        with torch.inference_mode():
            classes = model(torch.zeros(1, *source.shape)).shape[1]
    except RuntimeError as error:
        raise ValueError(f"the network does not take images of {source.name}") from error
    if classes < source.classes:
        raise ValueError(f"the network tells {classes} classes apart, {source.name} has {source.classes}")


def _mask(network: Supernetwork, packed: bytes) -> NDArray[np.bool_]:
    if len(packed) != (network.layout.size + 7) // 8:
        raise ValueError(f"{network.layout.size} edges are not {len(packed)} bytes of bits")
    mask = np.unpackbits(np.frombuffer(packed, np.uint8), count=network.layout.size).astype(bool)
    for layer in network.layout:
        kept, expected = int(mask[layer.edges].sum()), top_count(layer.size, network.keep)
        if kept != expected:
            raise ValueError(f"{kept} edges of layer {layer.name} are kept, {expected} should be")
    return mask


def open_model(path: Path) -> Portable:
    """Return a model to predict with: a file of fedrank's, or an ONNX file that it exported."""
    if path.suffix == SUFFIXES["torch"]:
        raise ConfigError(
            f"{path}: a state dict does not say which network it is of; export --to fedrank or onnx"
        )
    if path.suffix == SUFFIXES["onnx"]:
        return _open_onnx(path)
    model, source = read_compact(path)

    def predict(images: Inputs) -> NDArray[np.float32]:
        with torch.inference_mode():
            logits: Tensor = model(torch.from_numpy(source.preprocess(images)))
        return logits.numpy()

    return Portable(predict, source)


def _open_onnx(path: Path) -> Portable:
    try:
        import onnxruntime
    except ModuleNotFoundError:
        raise ConfigError("ONNX needs an extra: pip install 'fedrank[onnx]'") from None
    try:
        session = onnxruntime.InferenceSession(path.read_bytes(), providers=["CPUExecutionProvider"])
    except FileNotFoundError:
        raise RunError(f"{path}: there is no such file") from None
    except Exception as error:  # the runtime's own exceptions have no common name
        raise RunError(f"{path}: this is no model in ONNX ({error})") from error
    inputs, outputs = session.get_inputs(), session.get_outputs()
    if [(each.name, each.type, len(each.shape)) for each in inputs] != [("images", "tensor(float)", 4)] or [
        (each.name, len(each.shape)) for each in outputs
    ] != [("logits", 2)]:
        raise RunError(f"{path}: this model was not exported by fedrank; it should turn images into logits")
    source = SOURCES.get(session.get_modelmeta().custom_metadata_map.get(DATA, ""))
    if source is None:
        raise RunError(f"{path}: does not say which data it was trained on; fedrank's own exports do")
    shape, classes = tuple(inputs[0].shape[1:]), outputs[0].shape[1]
    if shape != source.shape or not isinstance(classes, int) or classes < source.classes:
        raise RunError(f"{path}: takes images of shape {shape} and is not made for {source.name}")

    def predict(images: Inputs) -> NDArray[np.float32]:
        try:
            return np.asarray(session.run(["logits"], {"images": images.astype(np.float32)})[0])
        except Exception as error:  # as above
            raise RunError(f"{path}: the model fails ({error})") from error

    return Portable(predict, source)


def read_images(paths: Sequence[Path], source: Source) -> Inputs:
    """Read image files as the data set stores its own: resized, and gray where it is gray."""
    channels, height, width = source.shape
    images = []
    for path in paths:
        try:
            with Image.open(path) as image:
                picture = _opaque(image).convert("L" if channels == 1 else "RGB").resize((width, height))
        except FileNotFoundError:
            raise DataError(f"{path}: there is no such file") from None
        except Exception as error:  # a damaged image makes its reader raise almost anything
            raise DataError(f"{path}: cannot be read as an image ({error})") from error
        pixels = np.asarray(picture, np.float32).reshape(height, width, channels).transpose(2, 0, 1)
        images.append(pixels * (source.preprocess.scale / 255))
    return np.stack(images)


def _opaque(image: Image.Image) -> Image.Image:
    """Return an image of eight bits a channel in which nothing is transparent."""
    if image.has_transparency_data and np.asarray(image.convert("RGBA").getchannel("A")).min() < 255:
        raise ValueError("it has transparent parts; save it on a plain background")
    if image.mode.startswith("I"):  # sixteen bits of gray, which `convert` would cut off at 255
        return Image.fromarray((np.asarray(image, np.float64) / 257).astype(np.uint8))
    return image
