"""Models that leave fedrank compute what they computed inside."""

import json
import struct
import zlib

import numpy as np
import pytest
import torch
from PIL import Image
from typer.testing import CliRunner

from fedrank.cli import app
from fedrank.data import Preprocess, find_source
from fedrank.errors import ConfigError, DataError, RunError
from fedrank.experiment.build import build, build_method
from fedrank.experiment.config import load_preset
from fedrank.experiment.rundir import RunDirectory
from fedrank.experiment.runner import Observers, last_state, run
from fedrank.export import (
    SUFFIXES,
    WithPreprocessing,
    compact_bytes,
    export,
    open_model,
    read_compact,
    read_images,
)
from fedrank.nn import NETWORKS

HEADER, CHECKSUM = struct.Struct("<4sBxxxI"), struct.Struct("<I")
SMALL = ("rounds=2", "data.clients=6", "clients_per_round=4", "local.epochs=1", "evaluate_every=9")


def made(path, preset="digits", *settings):
    experiment = load_preset(preset, (*SMALL, *settings))
    directory = RunDirectory.create(path, experiment, {"data_dir": "", "device": "cpu"})
    setup = build(experiment, path)
    run(directory, setup, workers=1, device="cpu", observer=Observers(()))
    return directory, setup


@pytest.fixture(scope="module", params=["signed", "authors"])
def trained(request, tmp_path_factory):
    """Return a run, its method and state, and real images with the logits of its model."""
    directory, setup = made(tmp_path_factory.mktemp("run") / "r", "digits", f"network.scores={request.param}")
    state = last_state(directory, setup.method)
    images = setup.federation.dataset.inputs[:100]
    with torch.inference_mode():
        inputs = torch.from_numpy(setup.federation.dataset.preprocess(images))
        logits = setup.method.model(state)(inputs).numpy()
    return directory, setup.method, state, images, logits


def test_a_state_dict_is_an_ordinary_one(trained, tmp_path):
    directory, method, state, images, logits = trained
    export(directory, method, state, "torch", tmp_path / "model.pt")
    network = NETWORKS["lenet-digits"]()
    network.load_state_dict(torch.load(tmp_path / "model.pt", weights_only=True))
    source = find_source(directory.experiment.data.name)
    with torch.inference_mode():
        assert np.array_equal(network(torch.from_numpy(source.preprocess(images))).numpy(), logits)


def test_the_compact_form_is_one_bit_an_edge_and_the_same_model(trained, tmp_path):
    directory, method, state, images, logits = trained
    path = tmp_path / "model.frlm"
    export(directory, method, state, "fedrank", path)
    assert path.stat().st_size < method.network.layout.size / 8 + 250
    assert np.array_equal(open_model(path).predict(images), logits)


def test_onnx_computes_the_same_on_real_images(trained, tmp_path):
    pytest.importorskip("onnxruntime", reason="ONNX is not installed: pip install 'fedrank[onnx]'")
    directory, method, state, images, logits = trained
    export(directory, method, state, "onnx", tmp_path / "model.onnx")
    predicted = open_model(tmp_path / "model.onnx").predict(images)
    np.testing.assert_allclose(predicted, logits, rtol=1e-3, atol=1e-4)
    assert (predicted.argmax(axis=1) == logits.argmax(axis=1)).all()


def test_a_lenet_takes_about_200_kilobytes(tmp_path):
    experiment = load_preset("mnist")
    method = build_method(experiment)
    content = compact_bytes(experiment, method, method.init())
    assert 200_000 < len(content) < 206_000
    (tmp_path / "lenet.frlm").write_bytes(content)
    assert open_model(tmp_path / "lenet.frlm").source.name == "mnist"


def test_damaged_models_are_refused(trained, tmp_path):
    directory, method, state, _, _ = trained
    path = tmp_path / "model.frlm"
    export(directory, method, state, "fedrank", path)
    content = path.read_bytes()
    for damaged in (
        b"",
        content[:-1],
        content[:100],
        content[:60] + b"x" + content[61:],
        b"PK" + content[2:],
    ):
        path.write_bytes(damaged)
        with pytest.raises(RunError, match="not a fedrank model"):
            read_compact(path)


def test_a_model_with_another_number_of_edges_is_refused(trained, tmp_path):
    """A checksum keeps out damage, not malice: what the bits say is checked, too."""
    directory, method, state, _, _ = trained
    path = tmp_path / "model.frlm"
    export(directory, method, state, "fedrank", path)
    body = bytearray(path.read_bytes()[: -CHECKSUM.size])
    body[-1] ^= 1
    path.write_bytes(sealed(bytes(body)))
    with pytest.raises(RunError, match="keeps"):
        read_compact(path)


def sealed(body):
    return body + CHECKSUM.pack(zlib.crc32(body))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"seed": 1.5}, "float"),
        ({"seed": "7"}, "str"),
        ({"data": "mnist"}, "does not accept images of mnist"),
        ({"data": "nothing"}, "nothing"),
        ({"network": "lenet"}, "edges"),
        ({"keep": 2}, "keep"),
        ("[" * 60_000, "recursion"),
        ("[]", "list"),
    ],
)
def test_a_model_with_a_hostile_description_is_refused(trained, tmp_path, changed, why):
    directory, method, state, _, _ = trained
    body = compact_bytes(directory.experiment, method, state)[: -CHECKSUM.size]
    length = HEADER.unpack_from(body)[2]
    described, bits = body[HEADER.size : HEADER.size + length], body[HEADER.size + length :]
    words = changed if isinstance(changed, str) else json.dumps(json.loads(described) | changed)
    header = HEADER.pack(b"FRLM", 1, len(words))
    (tmp_path / "m.frlm").write_bytes(sealed(header + words.encode() + bits))
    with pytest.raises(RunError, match=f"(?is)not a fedrank model .*{why}"):
        read_compact(tmp_path / "m.frlm")


def test_onnx_knows_its_data_set_even_if_the_network_fits_another(tmp_path):
    """MNIST's images in a network for FEMNIST's 62 characters: both forms must take them for digits."""
    pytest.importorskip("onnxruntime", reason="ONNX is not installed: pip install 'fedrank[onnx]'")
    experiment = load_preset("mnist", ["network.name=lenet-62"])
    directory = RunDirectory.create(tmp_path / "r", experiment, {"data_dir": "", "device": "cpu"})
    method = build_method(experiment)
    for form in ("onnx", "fedrank"):
        export(directory, method, method.init(), form, tmp_path / f"model{SUFFIXES[form]}")
        assert open_model(tmp_path / f"model{SUFFIXES[form]}").source.name == "mnist"


def test_onnx_that_fedrank_did_not_export_is_refused(tmp_path):
    onnx = pytest.importorskip("onnx", reason="ONNX is not installed: pip install 'fedrank[onnx]'")

    def model(inputs, outputs, kind="Identity", data="digits"):
        def values(named):
            return [onnx.helper.make_tensor_value_info(name, *rest) for name, *rest in named]

        node = onnx.helper.make_node(kind, [each[0] for each in inputs], [each[0] for each in outputs])
        graph = onnx.helper.make_graph([node], "g", values(inputs), values(outputs))
        made = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)])
        made.ir_version = 9
        made.metadata_props.add(key="fedrank.data", value=data)
        (tmp_path / "m.onnx").write_bytes(made.SerializeToString())
        return tmp_path / "m.onnx"

    float32, uint8 = onnx.TensorProto.FLOAT, onnx.TensorProto.UINT8
    for inputs, outputs in (
        ([("pictures", float32, ["n", 1, 8, 8])], [("logits", float32, ["n", 1, 8, 8])]),
        ([("images", uint8, ["n", 1, 8, 8])], [("logits", uint8, ["n", 1, 8, 8])]),
        ([("images", float32, ["n"])], [("logits", float32, ["n"])]),
    ):
        with pytest.raises(RunError, match="not exported by fedrank"):
            open_model(model(inputs, outputs))
    digits = [("images", float32, ["n", 1, 8, 8])], [("logits", float32, ["n", 10])]
    for data, why in (("", "does not name its data set"), ("mnist", "does not fit mnist")):
        with pytest.raises(RunError, match=why):
            open_model(model(*digits, "Flatten", data))
    flat = model([("images", float32, [1, 1, 8, 8])], [("logits", float32, [1, 10])], "Flatten")
    with pytest.raises(RunError):  # some versions of the runtime notice only when it runs
        open_model(flat).predict(np.zeros((2, 1, 8, 8)))


def test_what_a_run_lives_on_and_what_is_no_file_is_never_overwritten(trained, tmp_path):
    directory, method, state, _, _ = trained
    (tmp_path / "folder").mkdir()
    for path in (directory.path / "checkpoint.npz", directory.path / "config.toml", tmp_path / "folder"):
        before = path.stat()
        with pytest.raises(RunError, match="Choose another with --out"):
            export(directory, method, state, "torch", path)
        assert path.stat() == before
    (tmp_path / "link.pt").symlink_to(tmp_path / "target.pt")
    export(directory, method, state, "torch", tmp_path / "link.pt")
    assert (tmp_path / "link.pt").is_symlink()
    assert (tmp_path / "target.pt").stat().st_size > 1000
    with pytest.raises(RunError, match="cannot be written"):
        export(directory, method, state, "torch", tmp_path / "none" / "model.pt")


def test_weights_have_no_compact_form(tmp_path):
    directory, setup = made(tmp_path / "run", "digits-weights")
    state = last_state(directory, setup.method)
    with pytest.raises(ConfigError, match="trains weights"):
        export(directory, setup.method, state, "fedrank", tmp_path / "model")
    export(directory, setup.method, state, "torch", tmp_path / "model.pt")


def test_commands_export_and_predict(trained, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    directory, _, _, images, logits = trained
    invoke = CliRunner().invoke
    made = invoke(app, ["export", str(directory.path), "--to", "fedrank", "--out", str(tmp_path / "m.frlm")])
    assert made.exit_code == 0, made.output
    paths = []
    for number in range(5):
        paths.append(f"digit-{number}.png")
        Image.fromarray((images[number, 0] * (255 / 16)).round().astype(np.uint8)).save(paths[-1])
    told = invoke(app, ["predict", str(tmp_path / "m.frlm"), *paths])
    assert told.exit_code == 0, told.output
    answers = [line.split()[1] for line in told.output.splitlines() if "digit-" in line]
    assert answers == [str(row.argmax()) for row in logits[:5]]
    assert isinstance(invoke(app, ["export", str(directory.path), "--to", "keras"]).exception, ConfigError)
    assert isinstance(invoke(app, ["predict", str(tmp_path / "none.frlm"), *paths]).exception, RunError)
    assert isinstance(invoke(app, ["predict", str(tmp_path / "m.frlm"), __file__]).exception, DataError)
    assert isinstance(invoke(app, ["predict", "model.pt", *paths]).exception, ConfigError)


def test_images_are_read_as_the_data_set_stores_them(tmp_path):
    Image.new("RGB", (64, 48), (255, 0, 0)).save(tmp_path / "red.png")
    [red] = read_images([tmp_path / "red.png"], find_source("cifar10"))
    assert red.shape == (3, 32, 32)
    assert (red[0] == 255).all()
    assert (red[1:] == 0).all()
    [gray] = read_images([tmp_path / "red.png"], find_source("digits"))
    assert gray.shape == (1, 8, 8)
    assert gray.max() <= 16


def test_sixteen_bits_are_read_as_eight_and_transparent_images_are_refused(tmp_path):
    source = find_source("mnist")
    gray = np.arange(784, dtype=np.uint8).reshape(28, 28)
    Image.fromarray(gray).save(tmp_path / "8.png")
    Image.fromarray(gray.astype(np.uint16) * 257).save(tmp_path / "16.png")
    eight, sixteen = read_images([tmp_path / "8.png", tmp_path / "16.png"], source)
    assert np.array_equal(eight, sixteen)
    assert eight.max() > 200
    Image.fromarray(np.dstack([gray, gray, gray, np.full_like(gray, 255)])).save(tmp_path / "rgba.png")
    assert np.array_equal(read_images([tmp_path / "rgba.png"], source)[0], eight)
    Image.fromarray(np.dstack([gray, gray, gray, gray])).save(tmp_path / "clear.png")
    with pytest.raises(DataError, match="transparent"):
        read_images([tmp_path / "clear.png"], source)


@pytest.mark.filterwarnings("ignore")  # the readers complain of what they read
def test_images_that_make_their_reader_stumble_are_refused(tmp_path):
    """A header of 60,000 x 60,000 pixels, and damaged files of many kinds."""
    huge = tmp_path / "huge.ppm"
    huge.write_bytes(b"P6 60000 60000 255\n")
    rng = np.random.default_rng(5)
    paths = [huge]
    for kind in ("png", "bmp", "ppm", "tiff", "gif"):
        Image.fromarray(rng.integers(0, 255, (28, 28)).astype(np.uint8)).save(tmp_path / f"a.{kind}")
        content = bytearray((tmp_path / f"a.{kind}").read_bytes())
        for number in range(20):
            hurt = content.copy()
            for place in rng.integers(0, min(len(hurt), 120), 4):
                hurt[place] = int(rng.integers(256))
            paths.append(tmp_path / f"{number}.{kind}")
            paths[-1].write_bytes(hurt)
    refused = 0
    for path in paths:
        try:
            read_images([path], find_source("mnist"))
        except DataError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize("shape", [(5,), (3, 6), (3, 6, 6)])
def test_a_model_with_its_preprocessing_takes_inputs_as_they_are(shape):
    """Tables by column, signals and images by channel: what the network computes of preprocessed inputs."""
    rng = np.random.default_rng(4)
    inputs = rng.normal(3, 2, (7, *shape)).astype(np.float32)
    preprocess = Preprocess(mean=rng.normal(size=shape[0]), std=rng.uniform(1, 2, shape[0]))
    network = torch.nn.Flatten()
    portable = WithPreprocessing(network, preprocess)
    made = portable(torch.from_numpy(inputs)).numpy()
    np.testing.assert_allclose(made, network(torch.from_numpy(preprocess(inputs))).numpy(), atol=1e-6)
    assert set(portable.state_dict()) == {"factor", "shift"}
    doubled = portable(torch.from_numpy(inputs.astype(np.float64)))
    assert torch.equal(doubled, torch.from_numpy(made))
