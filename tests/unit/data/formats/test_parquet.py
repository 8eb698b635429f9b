from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from tfhybrid.data import Column, Parquet, string_keys
from tfhybrid.errors import DataError

EXTREMES = [0, -1, 2**63 - 1, -(2**63)]


@pytest.fixture
def write(tmp_path):
    def write(row_group_size=None, **columns):
        path = tmp_path / "part.parquet"
        rows = len(next(iter(columns.values())))
        table = pa.table({"label": pa.array([0] * rows), **columns})
        pa.parquet.write_table(table, path, row_group_size=row_group_size)
        return path

    return write


def keys(path, **options):
    return Parquet(["user"], **options).read(path).features["user"].tolist()


@pytest.mark.parametrize(
    ("type_", "values"),
    [
        (pa.int64(), EXTREMES),
        (pa.int8(), [-128, 127]),
        (pa.uint64(), [0, 2**63 - 1]),
        (pa.float64(), [1.0, 2.0**53 - 1]),  # what pandas makes of integers beside a missing one
        (pa.list_(pa.int64()), [[1, 2], [], [3]]),
        (pa.large_list(pa.int32()), [[1], [2, 3]]),
        (pa.list_(pa.int64(), 2), [[1, 2], [3, 4]]),
    ],
)
def test_keys_of_every_type(write, type_, values):
    assert keys(write(user=pa.array(values, type_))) == values


@pytest.mark.parametrize("length", [1, 2, None])
def test_the_length_of_a_column_is_that_in_the_files(write, length):
    columns = [Column("user", length=length), Column("tags", length=length)]
    clicks = Parquet(columns).read(write(user=pa.array([7]), tags=pa.array([[1, 2]])))
    assert clicks.features["user"].tolist() == [7]
    assert clicks.features["tags"].tolist() == [[1, 2]]


@pytest.mark.parametrize("type_", [pa.string(), pa.dictionary(pa.int32(), pa.string())])
def test_strings_have_the_keys_that_a_model_gives_them(write, type_):
    path = write(user=pa.array(["shoes", "", "shoes"]).cast(type_))
    assert keys(path) == string_keys(["shoes", "", "shoes"]).numpy().tolist()


def test_lists_of_strings(write):
    path = write(user=pa.array([["a", "b"], [], ["a"]]))
    a, b = string_keys(["a", "b"]).numpy()
    assert keys(path) == [[a, b], [], [a]]


@pytest.mark.parametrize(
    ("values", "type_", "found"),
    [
        ([1, None, 3], pa.int64(), [1, -7, 3]),
        ([1.0, None], pa.float64(), [1, -7]),
        ([[1, None], None, [2]], pa.list_(pa.int64()), [[1, -7], [], [2]]),
    ],
)
def test_missing_keys_get_the_key_that_stands_for_them(write, values, type_, found):
    assert keys(write(user=pa.array(values, type_)), missing_key=-7) == found


def test_missing_strings_too(write):
    path = write(user=pa.array(["a", None]))
    assert keys(path, missing_key=-7) == [int(string_keys(["a"])[0]), -7]


def test_dense_columns(write):
    path = write(
        price=pa.array([1, 2**24]),
        paid=pa.array([True, False]),
        image=pa.array([[1.5, 2.5], [3.5, 4.5]], pa.list_(pa.float64(), 2)),
        age=pa.array([None, float("nan")], pa.float32()),
    )
    clicks = Parquet([], dense=["price", "paid", "image", "age"], missing_value=-1.0).read(path)
    dense = {name: column.tolist() for name, column in clicks.dense.items()}
    assert dense == {
        "price": [1, 2**24],
        "paid": [1, 0],
        "image": [[1.5, 2.5], [3.5, 4.5]],
        "age": [-1, -1],
    }
    assert {column.dtype for column in clicks.dense.values()} == {np.dtype(np.float32)}


def test_row_groups_are_the_units(write):
    path = write(3, user=pa.array(range(8)))
    units = Parquet(["user"]).units(path)
    assert [(unit.first_row, unit.rows) for unit in units] == [(0, 3), (3, 3), (6, 2)]
    assert Parquet(["user"]).read_unit(units[1]).features["user"].tolist() == [3, 4, 5]


def test_a_file_without_rows(write):
    assert keys(write(user=pa.array([], pa.int64()))) == []


def test_ratings_become_labels(tmp_path):
    path = tmp_path / "ratings.parquet"
    pa.parquet.write_table(pa.table({"user": [1, 2], "rating": [3.5, 4.0]}), path)
    clicks = Parquet(["user"], label="rating", positive=4.0).read(path)
    assert clicks.label.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1, None]), r"column 'user', row 1: expected a key \(missing_key="),
        (pa.array([[1], [2, None]]), r"column 'user', row 1: expected a key \(missing_key="),
        # Refused by pyarrow up to 25 as it reads, then by us.
        (
            pa.array([[1], None], pa.list_(pa.int64(), 1)),
            "expected (.* lists to be of size=1|a list of 1)",
        ),
        (pa.array([1.5]), "column 'user', row 0: expected keys that are int64"),
        (pa.array([2**63], pa.uint64()), "expected keys that are int64"),
        (pa.array([b"x"]), "expected integers or strings as keys. Received: 'binary'"),
        (
            pa.Array.from_buffers(pa.string(), 2, pa.array([b"x", b"\xe9"]).buffers()),
            r"column 'user', row 1: expected a string. Received: b'\\xe9'",
        ),
    ],
)
def test_what_is_no_key_is_refused_by_its_place(write, column, message):
    with pytest.raises(DataError, match=rf"part\.parquet.*{message}"):
        keys(write(user=column))


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pa.array([1.0, None]), r"row 1: expected a number \(missing_value="),
        (pa.array([1.0, float("nan")]), "row 1: expected a number"),
        (pa.array(["x"]), "expected numbers. Received: 'string'"),
    ],
)
def test_what_is_no_number_is_refused_by_its_place(write, column, message):
    with pytest.raises(DataError, match=rf"part\.parquet, column 'price', {message}|{message}"):
        Parquet([], dense=["price"]).read(write(price=column))


def test_other_labels_are_refused_by_their_row(tmp_path):
    path = tmp_path / "part.parquet"
    pa.parquet.write_table(pa.table({"label": [0, 1, 2, None]}), path, row_group_size=2)
    with pytest.raises(DataError, match=r"row 2: expected a label of \[0, 1\]. Received: 2\."):
        Parquet([]).read(path)


def test_a_missing_column_is_named(write):
    with pytest.raises(DataError, match=r"expected the columns \['item', 'label'\].*no \['item'\]"):
        Parquet(["item"]).read(write(user=pa.array([1])))


def test_what_is_no_parquet_is_refused(tmp_path):
    path = tmp_path / "part.parquet"
    path.write_text("label,user\n0,1\n")
    with pytest.raises(DataError, match=r"part\.parquet: expected a Parquet file"):
        Parquet(["user"]).read(path)


def test_a_footer_that_counts_other_rows_is_refused(write):
    path = write(user=pa.array(range(8)))
    (unit,) = Parquet(["user"]).units(path)
    write(user=pa.array(range(5)))
    with pytest.raises(DataError, match=r"row groups from 0 on: expected 8 rows.* Received: 5"):
        Parquet(["user"]).read_unit(unit)


def parquet_with_checksums(path):
    table = pa.table({"label": [1.0, 0.0], "user": [7, 0x1122334455667788]})
    options = {"use_dictionary": False, "compression": "none", "write_statistics": False}
    pa.parquet.write_table(table, path, write_page_checksum=True, **options)
    return path


def test_checksums_of_parquet_pages_are_compared(tmp_path):
    path = parquet_with_checksums(tmp_path / "day.parquet")
    assert Parquet(["user"]).read(path).features["user"].tolist() == [7, 0x1122334455667788]
    content = bytearray(path.read_bytes())
    content[content.index(bytes.fromhex("8877665544332211"))] ^= 1
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"day\.parquet, row groups from 0 on: .*(?i:crc)"):
        Parquet(["user"]).read(path)


def test_a_file_that_arrow_cannot_open_is_named(tmp_path):
    path = parquet_with_checksums(tmp_path / "day.parquet")
    content = path.read_bytes()
    length = int.from_bytes(content[-8:-4], "little")
    path.write_bytes(content[: -8 - length] + b"\xff" * length + content[-8:])
    with pytest.raises(DataError, match=r"day\.parquet: expected a Parquet file\. Received: "):
        Parquet(["user"]).read(path)
    with pytest.raises(FileNotFoundError):
        Parquet(["user"]).read(tmp_path / "night.parquet")


def test_a_name_that_is_no_utf8_is_an_error_of_its_file(write):
    path = write(user=pa.array([1]), zzzz=pa.array([1]))
    path.write_bytes(path.read_bytes().replace(b"zzzz", b"z\xffzz"))
    with pytest.raises(DataError, match=r"part\.parquet: expected a Parquet file.*utf-8"):
        keys(path)
