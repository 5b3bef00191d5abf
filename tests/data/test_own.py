"""Clients with data of their own, in every form in which people have them."""

from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from sklearn.datasets import load_digits
from torch.utils.data import ConcatDataset, DataLoader, Dataset, IterableDataset, Subset, TensorDataset

import fedrank
from fedrank.data import Federation
from fedrank.errors import DataError

IMAGES, LABELS = load_digits(return_X_y=True)
IMAGES = IMAGES[:60].reshape(-1, 1, 8, 8)
LABELS = LABELS[:60]
PARTS = {"north": slice(0, 20), "south": slice(20, 50), "west": slice(50, 60)}
CLIENTS = {name: (IMAGES[part], LABELS[part]) for name, part in PARTS.items()}


class Table:
    """Stands in for `datasets.Dataset`: rows by number, columns by name."""

    def __init__(self, columns: dict[str, list[Any]]) -> None:
        self.columns = columns
        self.features = dict.fromkeys(columns)

    @property
    def column_names(self) -> list[str]:
        return list(self.columns)

    def __len__(self) -> int:
        return len(next(iter(self.columns.values())))

    def __getitem__(self, key: int | str) -> Any:
        if isinstance(key, str):
            return self.columns[key]
        return {name: values[key] for name, values in self.columns.items()}


class Parts(dict):
    """Stands in for `datasets.DatasetDict`."""

    @property
    def column_names(self) -> dict[str, list[str]]:
        return {name: table.column_names for name, table in self.items()}


def picture(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[0].astype(np.uint8))


def writers() -> list[str]:
    return [name for name, part in PARTS.items() for _ in LABELS[part]]


def table(**more: list[Any]) -> Table:
    return Table({"image": [picture(image) for image in IMAGES], "character": LABELS.tolist(), **more})


def same(one: Federation, other: Federation) -> bool:
    """Whether two federations give every client the same samples."""
    return len(one) == len(other) and all(
        np.array_equal(read(one).inputs, read(other).inputs)
        and np.array_equal(read(one).labels, read(other).labels)
        for number in range(len(one))
        for read in (
            lambda federation, number=number: federation.train_samples(number),
            lambda federation, number=number: federation.test_samples(number),
        )
    )


def test_every_sample_belongs_to_the_client_that_brought_it() -> None:
    clients = fedrank.federation(CLIENTS)
    assert clients.names == ("north", "south", "west")
    for name, part in PARTS.items():
        train, test = clients.train_samples(name), clients.test_samples(name)
        assert len(test) == round(0.2 * len(LABELS[part]))
        together = np.concatenate([train.inputs, test.inputs]).reshape(-1, 64)
        assert sorted(map(tuple, together)) == sorted(map(tuple, IMAGES[part].reshape(-1, 64)))
    held_out = sum(len(clients.test_samples(name)) for name in PARTS)
    assert clients.test.size == held_out
    assert same(clients, fedrank.federation(CLIENTS))
    assert not same(clients, fedrank.federation(CLIENTS, seed=1))


def test_a_list_numbers_the_clients() -> None:
    numbered = fedrank.federation(list(CLIENTS.values()))
    assert numbered.names == ()
    assert same(numbered, fedrank.federation(CLIENTS))
    assert numbered.number_of(2) == 2
    assert len(numbered.train_samples(2)) == 8


class Rows(Dataset):
    """A map-style data set with tensors, as tutorials write it."""

    def __init__(self, images: np.ndarray, labels: np.ndarray) -> None:
        self.images, self.labels = images, labels

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if not 0 <= index < len(self):
            raise IndexError
        return torch.from_numpy(self.images[index]), int(self.labels[index])


@pytest.mark.parametrize(
    "form",
    [
        lambda x, y: (torch.from_numpy(x), torch.from_numpy(y)),
        lambda x, y: (x.tolist(), y.tolist()),
        lambda x, y: Rows(x, y),
        lambda x, y: TensorDataset(torch.from_numpy(x), torch.from_numpy(y)),
        lambda x, y: Subset(Rows(x[::-1].copy(), y[::-1]), range(len(y) - 1, -1, -1)),
        lambda x, y: ConcatDataset([Rows(x[:3], y[:3]), Rows(x[3:], y[3:])]),
        lambda x, y: lambda: (x, y),
        lambda x, y: lambda: Rows(x, y),
    ],
    ids=["tensors", "lists", "dataset", "tensor-dataset", "subset", "concat", "function", "lazy-dataset"],
)  # fmt: skip
def test_all_forms_of_data_make_the_same_federation(form: Any) -> None:
    made = fedrank.federation({name: form(*data) for name, data in CLIENTS.items()})
    assert same(made, fedrank.federation(CLIENTS))


def test_functions_are_called_once_each() -> None:
    called = []

    def loader(name: str) -> Any:
        def load() -> Any:
            called.append(name)
            return CLIENTS[name]

        return load

    fedrank.federation({name: loader(name) for name in CLIENTS})
    assert called == list(CLIENTS)


def test_a_hugging_face_data_set_names_its_clients_in_a_column() -> None:
    mixed = np.random.default_rng(1).permutation(60)
    names = np.array(writers())[mixed].tolist()
    shuffled = Table(
        {
            "writer_id": names,
            "image": [picture(IMAGES[i]) for i in mixed],
            "character": LABELS[mixed].tolist(),
        }
    )
    clients = fedrank.federation(shuffled, client="writer_id", inputs="image", labels="character")
    assert set(clients.names) == set(PARTS)
    assert clients.dataset.inputs.dtype == np.uint8
    assert clients.dataset.preprocess.scale == 255
    for name, part in PARTS.items():
        both = [clients.train_samples(name), clients.test_samples(name)]
        found = np.concatenate([some.inputs for some in both]).reshape(-1, 64)
        assert sorted(map(tuple, found)) == sorted(map(tuple, IMAGES[part].reshape(-1, 64)))


def test_numbers_in_the_column_become_names() -> None:
    numbered = table(patient=[17 if name == "north" else 3 for name in writers()])
    clients = fedrank.federation(numbered, client="patient", inputs="image", labels="character")
    assert clients.names == ("patient-17", "patient-3")
    assert len(clients.clients[0].train) == 16


def test_partitions_of_a_hugging_face_data_set_are_clients() -> None:
    tables = [
        Table({"img": [picture(image) for image in x], "label": y.tolist()}) for x, y in CLIENTS.values()
    ]
    clients = fedrank.federation(tables, inputs="img", labels="label")
    integers = {name: (x.astype(np.uint8), y) for name, (x, y) in CLIENTS.items()}
    assert same(clients, fedrank.federation(integers))


def test_several_columns_are_a_table() -> None:
    rows = Table(
        {"age": [1.0, 2.0, 3.0], "height": [4.0, 5.0, 6.0], "ill": [0, 1, 0], "ward": ["a", "a", "b"]}
    )
    clients = fedrank.federation(
        rows, client="ward", inputs=["age", "height"], labels="ill", test_share=0, test=([[1.0, 2.0]], [0])
    )
    assert clients.train_samples("b").inputs.tolist() == [[3.0, 6.0]]


def test_color_images_are_channels_first() -> None:
    pixels = np.arange(4 * 6 * 5 * 3, dtype=np.uint8).reshape(4, 6, 5, 3)
    rows = Table({"img": [Image.fromarray(each) for each in pixels], "label": [0, 1, 0, 1]})
    clients = fedrank.federation([rows], inputs="img", labels="label")
    assert clients.dataset.inputs.shape == (4, 3, 6, 5)
    assert np.array_equal(clients.dataset.inputs, pixels.transpose(0, 3, 1, 2))
    assert len(clients.dataset.preprocess.mean) == 3


def test_clients_with_test_data_of_their_own_train_on_all_the_rest() -> None:
    own = {"south": (IMAGES[:5], LABELS[:5]), "north": lambda: (IMAGES[5:7], LABELS[5:7])}
    clients = fedrank.federation(CLIENTS, test=own)
    sizes = {name: (len(clients.train_samples(name)), len(clients.test_samples(name))) for name in PARTS}
    assert sizes == {"north": (20, 2), "south": (30, 5), "west": (8, 2)}
    assert np.array_equal(clients.test_samples("south").inputs, IMAGES[:5])
    assert clients.test.size == 9
    numbered = fedrank.federation(list(CLIENTS.values()), test=[own["north"], own["south"], None])
    assert same(clients, numbered)


def test_a_global_test_set_may_be_the_only_one() -> None:
    clients = fedrank.federation(CLIENTS, test=Rows(IMAGES[:7], LABELS[:7]), test_share=0)
    assert [client.train.size for client in clients] == [20, 30, 10]
    assert not any(client.test.size for client in clients)
    assert np.array_equal(clients.dataset.select(clients.test).labels, LABELS[:7])
    train = IMAGES
    assert clients.dataset.preprocess.mean[0] == pytest.approx(train.mean(), rel=1e-6)


def test_a_client_without_samples_never_votes() -> None:
    clients = fedrank.federation({**CLIENTS, "empty": (IMAGES[:0], LABELS[:0]), "none": ([], [])})
    assert clients.voters.tolist() == [0, 1, 2]
    assert clients.idle == {3, 4}


def test_whole_and_broken_numbers_join_but_bytes_join_only_bytes() -> None:
    joined = fedrank.federation(
        [(np.zeros((5, 2), int), np.zeros(5, int)), (np.ones((5, 2)), np.ones(5, int))]
    )
    assert joined.dataset.inputs.dtype == np.float64
    with pytest.raises(DataError, match="client 1 have type float64, but those of client 0 uint8"):
        fedrank.federation(
            [(np.zeros((5, 2), np.uint8), np.zeros(5, int)), (np.ones((5, 2)), np.ones(5, int))]
        )


class Broken(Rows):
    def __getitem__(self, index: int) -> Any:
        raise OSError("no such file: 3.png")


class Stream(IterableDataset):
    def __iter__(self) -> Any:
        return iter(())


def missing() -> Any:
    raise FileNotFoundError("ward.npz")


X, Y = CLIENTS["north"]
ROWS = {"client": "who", "inputs": "image", "labels": "character"}
SHORT = {"inputs": "i", "labels": "l"}


@pytest.mark.parametrize(
    ("clients", "options", "complaint"),
    [
        ({}, {}, "there are no clients"),
        ([], {}, "there are no clients"),
        (None, {}, "must be a dict of names and data, or a list of data, got NoneType"),
        ((X, Y), {}, "client 0: expected a tuple"),
        ({"a": X}, {}, "client a: expected a tuple .* got ndarray"),
        ({"a": [X, Y]}, {}, "client a: expected a tuple .* got list"),
        ({"a": (X,)}, {}, "client a: .* got a tuple of 1"),
        ({"a": (X, Y[:-1])}, {}, "client a: got 20 inputs but 19 labels"),
        ({"a": (X, Y.astype(float))}, {}, "client a: expected one integer label .*astype"),
        ({"a": (X, Y - 9)}, {}, "client a: labels must be integers from 0"),
        ({"a": (X, ["cat"] * 20)}, {}, "client a: .*number the classes from 0"),
        ({"a": (X, np.eye(20))}, {}, "client a: .*argmax"),
        ({"a": (np.where(X > 15, np.nan, X), Y)}, {}, "client a: sample .* contains nan"),
        ({"a": (np.where(X > 15, 1e300, X), Y)}, {}, "client a: sample .* contains 1e\\+300"),
        ({"a": (np.full(20, "x"), Y)}, {}, "client a: inputs must be numbers, got an array of type <U1"),
        ({"a": (X.astype(object), Y)}, {}, "client a: inputs must be numbers.*same shape"),
        ({"a": ([[1.0], [1.0, 2.0]], [0, 1])}, {}, "client a: the inputs cannot be converted"),
        ({"a": (X + 1j, Y)}, {}, "inputs must be numbers, got an array of type complex128"),
        ({"a": (X, Y), "b": (X[:, :, :4], Y)}, {}, "client b have shape \\(1, 4, 8\\), but"),
        ({"a": Broken(X, Y)}, {}, "client a: sample 0 .*no such file: 3.png"),
        ({"a": Stream()}, {}, "client a: the data set has no length"),
        ({"a": DataLoader(Rows(X, Y))}, {}, "client a: .* got DataLoader; pass its .dataset"),
        ({"a": missing}, {}, "client a: the function that loads its data failed .*ward.npz"),
        ({"a": lambda: missing}, {}, "client a: .* returned a function"),
        ({"a": (X[:0], Y[:0])}, {}, "the data set is empty"),
        ({1: (X, Y)}, {}, "name must be a string, got 1; pass a list"),
        ({"7": (X, Y)}, {}, "'7' cannot be a client's name, because .* use .* 'client-7'"),
        ({" ": (X, Y)}, {}, "' ' cannot be a client's name"),
        ({"a\n": (X, Y)}, {}, "cannot be a client's name"),
        (CLIENTS, {"test": {"noth": (X, Y)}}, "test: unknown client 'noth'; did you mean 'north'"),
        (CLIENTS, {"test": [(X, Y)]}, "test must be a tuple"),
        ([(X, Y)], {"test": {"a": (X, Y)}}, "the clients have no names; pass a list"),
        (CLIENTS, {"test": (X, Y[1:])}, "the global test set: got 20 inputs but 19 labels"),
        (CLIENTS, {"test": {"north": (X, Y[1:])}}, "the test data of client north: got 20 inputs"),
        (CLIENTS, {"test_share": 1.5}, "test_share must be at least 0 and less than 1, got 1.5"),
        (CLIENTS, {"test_share": "a"}, "test_share must be a number, got 'a'"),
        (CLIENTS, {"seed": None}, "seed must be a whole number, got None"),
        (CLIENTS, {"seed": -1}, "seed must be at least 0, got -1"),
        (CLIENTS, {"preprocess": "standardise"}, "preprocess must be 'standardize', None or a Preprocess"),
        (CLIENTS, {"client": "who"}, "one Hugging Face data set, got dict"),
        (Table({"who": [], "image": [], "character": []}), ROWS, "there are no clients"),
        (table(), {}, "says whose a sample is with client=.*'image', 'character'"),
        (table(), {**ROWS, "client": "character_"}, "no column 'character_'; did you mean 'character'"),
        (table(who=[1.5] * 60), ROWS, "column 'who' must contain strings or integers, got 1.5 for sample 0"),
        (table(who=writers()), {"client": "who"}, "name the columns with inputs=... and labels=..."),
        (table(who=writers()), {**ROWS, "labels": "char"}, "no column 'char'"),
        ([table()], {"inputs": "image"}, "client 0: name the columns"),
        (Parts(train=table()), {}, "clients: this has the parts 'train'; pass one of them"),
        (CLIENTS, {"test": Parts(test=table())}, "test: this has the parts 'test'"),
        ([Table({"i": [Image.new("RGBA", (2, 2))], "l": [0]})], SHORT, "mode 'RGBA'"),
        ([Table({"i": [[1, 2], [1]], "l": [0, 1]})], SHORT, "sample 1 has shape"),
        ([Table({"i": ["a", "b"], "l": [0, 1]})], SHORT, "must be numbers, got <U1"),
    ],
)  # fmt: skip
def test_what_cannot_be_used_is_refused_in_a_sentence(
    clients: Any, options: dict[str, Any], complaint: str
) -> None:
    with pytest.raises(DataError, match=complaint) as caught:
        fedrank.federation(clients, **options)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 300


def test_columns_without_a_data_set_that_has_some_are_refused() -> None:
    own = ([[0.5], [1.5]], [0, 1])
    with pytest.raises(DataError, match="name columns, but no data set here is one of Hugging Face"):
        fedrank.federation({"north": own}, test=own, inputs="image", labels="label")


def test_a_federation_is_short_to_look_at() -> None:
    clients = fedrank.federation({f"<b>{name}</b>": data for name, data in CLIENTS.items()})
    assert repr(clients) == (
        "Federation(3 clients, 48 training and 12 test samples of shape (1, 8, 8), 10 classes)"
    )
    assert len(clients) == 3
    assert [client.train.size for client in clients] == [16, 24, 8]
    page = clients._repr_html_()
    assert "&lt;b&gt;north&lt;/b&gt;" in page
    assert "<td>24</td>" in page
    for part in (clients.dataset, clients.train_samples(0), clients.clients[0]):
        assert len(repr(part)) < 80
    many = fedrank.split(
        np.zeros((500, 2)), np.zeros(500, int), by=fedrank.IID(), clients=100, seed=1
    )  # numbered clients
    assert "and 90 more" in many._repr_html_()
    assert len(many._repr_html_()) < 1500


def test_clients_are_found_by_name_and_by_number() -> None:
    clients = fedrank.federation(CLIENTS)
    assert "south" in clients
    assert "nort" not in clients
    assert clients["south"] is clients[1] is clients.clients[1]
    assert clients[1] in clients
    with pytest.raises(DataError, match="unknown client 'nort'; did you mean 'north'"):
        clients["nort"]
    with pytest.raises(DataError, match="unknown client 3: clients are numbered 0 to 2"):
        clients[3]


def test_a_generator_of_clients_is_as_good_as_a_list() -> None:
    made = fedrank.federation(pair for pair in CLIENTS.values())
    listed = fedrank.federation(list(CLIENTS.values()))
    assert repr(made) == repr(listed)
    assert np.array_equal(made.dataset.inputs, listed.dataset.inputs)


def test_unknown_clients_are_named() -> None:
    clients = fedrank.federation(CLIENTS)
    assert clients.number_of("south") == 1
    with pytest.raises(DataError, match="unknown client 'nort'; did you mean 'north'"):
        clients.train_samples("nort")
    with pytest.raises(DataError, match="unknown client 3: clients are numbered 0 to 2"):
        clients.train_samples(3)
    with pytest.raises(DataError, match="have no names"):
        fedrank.federation([CLIENTS["north"]]).train_samples("north")
    with pytest.raises(DataError, match="two clients are called 'a'"):
        Federation(clients.dataset, clients.clients, clients.test, names=("a", "b", "a"))
    with pytest.raises(DataError, match="2 names for 3 clients"):
        Federation(clients.dataset, clients.clients, clients.test, names=("a", "b"))
