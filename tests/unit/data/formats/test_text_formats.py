from __future__ import annotations

import bz2
import csv
import functools
import gzip
import math

import numpy as np
import pytest

from tests.unit.data.formats.criteo_lines import criteo_line
from tfhybrid.data import MISSING_KEY, Criteo, Csv, Libfm, string_keys
from tfhybrid.data.archives import open_criteo_head, open_frappe, open_movielens_stream, unpacked
from tfhybrid.data.formats import text
from tfhybrid.errors import ConfigError, DataError

FRAPPE = "label,user,item\n1,266,1244\n0,138,1296\n"


def written(tmp_path, text, name="file.txt"):
    path = tmp_path / name
    path.write_bytes(text.encode())
    return path


def test_csv_reads_the_wanted_columns_in_the_wanted_order(tmp_path):
    clicks = Csv(["item", "user"]).read(written(tmp_path, FRAPPE))

    assert list(clicks.features) == ["item", "user"]
    assert clicks.features["item"].tolist() == [1244, 1296]
    assert clicks.label.tolist() == [1, 0]


def test_csv_keeps_keys_of_every_extreme(tmp_path):
    keys = [0, -1, 2**63 - 1, -(2**63), 2**53 + 1]
    text = "label,user\n" + "".join(f"0,{key}\n" for key in keys)

    assert Csv(["user"]).read(written(tmp_path, text)).features["user"].tolist() == keys


def test_csv_takes_windows_line_ends_and_compression(tmp_path):
    path = tmp_path / "file.csv.gz"
    path.write_bytes(gzip.compress(FRAPPE.replace("\n", "\r\n").encode()))

    assert Csv(["user"]).read(path).features["user"].tolist() == [266, 138]


def test_csv_passes_over_quoted_commas(tmp_path):
    path = written(tmp_path, 'label,title,user\n1,"Good, the Bad, the",5\n')

    assert Csv(["user"]).read(path).features["user"].tolist() == [5]


def test_csv_turns_ratings_into_labels(tmp_path):
    path = written(tmp_path, "user,rating\n1,3.5\n2,4\n3,4.5\n")

    clicks = Csv(["user"], label="rating", positive=4.0).read(path)
    assert clicks.label.tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (FRAPPE + "0,138\n", r"line 4: expected 3 columns\. Received: '0,138'"),
        (FRAPPE + "0,138,1296,5\n", r"line 4: expected 3 columns\. Received: '0,138,1296,5'"),
        (
            FRAPPE + "\n0,138,1296\n",
            r"column 'user', line 4: expected a key \(missing_key= .*Received: an empty field\.",
        ),
        (
            FRAPPE + "0,13x,1296\n",
            r"column 'user', line 4: expected a key, a whole number.*Received: '13x'",
        ),
        (
            FRAPPE + "0,1.5,1296\n",
            r"column 'user', line 4: expected a key, a whole number.*Received: '1\.5'",
        ),
        (
            FRAPPE + "0,,1296\n",
            r"column 'user', line 4: expected a key \(missing_key= .*Received: an empty field\.",
        ),
        (
            FRAPPE + "0,9223372036854775808,1\n",
            r"column 'user', line 4: .*int64.*Received: '9223372036854775808'",
        ),
        (
            FRAPPE + "yes,138,1296\n",
            r"column 'label', line 4: expected a label of .*Received: 'yes'",
        ),
        (FRAPPE + "2,138,1296\n", r"line 4: expected a label of \[0, 1\]\. Received: 2\.0"),
        (FRAPPE + "nan,138,1296\n", r"line 4: expected a label of \[0, 1\]\. Received: nan"),
        ("label,user\n1,2\n", r"line 1: expected a header.*Received: .*'item'"),
        ("", "Received: Empty CSV file"),
    ],
)
def test_malformed_csv_names_file_and_line(tmp_path, text, message):
    with pytest.raises(DataError, match=rf"file\.txt.*{message}"):
        Csv(["user", "item"]).read(written(tmp_path, text))


def test_a_bad_line_far_into_a_file_is_named(tmp_path):
    lines = ["label,user\n", *["0,1\n"] * 600_000, "0,?\n"]

    with pytest.raises(DataError, match=r"line 600002: .*'\?'"):
        Csv(["user"]).read(written(tmp_path, "".join(lines)))


def test_libfm_names_the_entries_of_a_line(tmp_path):
    clicks = Libfm(["user", "item"]).read(written(tmp_path, "1 451:1 -7:1\n-1 12:1 8:1\n"))

    assert clicks.features["user"].tolist() == [451, 12]
    assert clicks.features["item"].tolist() == [-7, 8]
    assert clicks.label.tolist() == [1, 0]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1 451:1", r"expected 3 columns\. Received: '1 451:1'"),
        ("1 451:1 7:0.5", r"expected an entry `key:1`\. Received: '7:0\.5'"),
        ("1 451:1 a:1", r"expected an entry `key:1`\. Received: 'a:1'"),
        ("1 451:1 7", r"expected an entry `key:1`\. Received: '7'"),
        ("3 451:1 7:1", r"expected a label of \[-1, 0, 1\]"),
    ],
)
def test_malformed_libfm_names_file_and_line(tmp_path, line, message):
    path = written(tmp_path, f"1 451:1 7:1\n{line}\n")

    with pytest.raises(DataError, match=rf"file\.txt(, column '\w+')?, line 2: {message}"):
        Libfm(["user", "item"]).read(path)


@pytest.mark.parametrize("suffix", ["", ".gz", ".bz2"])
@pytest.mark.parametrize(
    "file_format", [Libfm(["user"]), Criteo(), Csv(["user"], columns=["label", "user"])]
)
def test_a_file_without_header_and_lines_has_no_samples(tmp_path, file_format, suffix):
    path = tmp_path / f"rows{suffix}"
    path.write_bytes({".gz": gzip.compress, ".bz2": bz2.compress}.get(suffix, bytes)(b""))
    assert len(file_format.read(path)) == 0


def test_criteo_reads_hex_ids_exactly_and_marks_empty_fields(tmp_path):
    text = criteo_line() + criteo_line("0", "", "") + criteo_line(number="-2", category="ffffffff")

    clicks = Criteo().read(written(tmp_path, text))

    assert clicks.label.tolist() == [1, 0, 1]
    for i in range(1, 27):
        assert clicks.features[f"C{i}"].tolist() == [0x68FD1E64, MISSING_KEY, 0xFFFFFFFF]
    for i in range(1, 14):
        np.testing.assert_allclose(clicks.dense[f"I{i}"], [math.log(4), 0, 0], rtol=1e-6)


def test_criteo_buckets_tell_empty_fields_apart(tmp_path):
    numbers = ["", "-1", "0", "1", "2", "3", "100"]
    text = "".join(criteo_line(number=number) for number in numbers)

    clicks = Criteo(bucketize=True).read(written(tmp_path, text))

    assert not clicks.dense
    assert clicks.features["I1"].tolist() == [MISSING_KEY, 0, 0, 1, 2, 3, 23]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (criteo_line(fields=25), r"expected 40 columns\. Received: '1\\t3"),
        (criteo_line(number="1.5"), r"expected a number\. Received: '1\.5'"),
        (
            criteo_line(category="68fd1e6g"),
            "expected up to 8 hexadecimal digits. Received: '68fd1e6g'",
        ),
        (
            criteo_line(category="168fd1e64"),
            "expected up to 8 hexadecimal digits. Received: '168fd1e64'",
        ),
        (criteo_line(label=""), r"expected a label of \[0, 1\]"),
    ],
)
def test_malformed_criteo_names_file_and_line(tmp_path, line, message):
    path = written(tmp_path, criteo_line() + line)

    with pytest.raises(DataError, match=rf"file\.txt(, column '\w+')?, line 2: {message}"):
        Criteo().read(path)


def test_keys_that_are_no_utf8_are_malformed(tmp_path):
    path = tmp_path / "latin.libfm"
    path.write_bytes(b"1 4:1 5:1\n0 4:1 \xe9:1\n")
    with pytest.raises(DataError, match=r"column 'b', line 2: expected .*Received: b'\\xe9:1'"):
        Libfm(["a", "b"]).read(path)


def test_criteo_head_equals_a_plain_parse_of_it(real_data):
    rows = []
    for part in ("train", "dev", "test"):
        with (unpacked("criteo-head8000") / f"{part}.tsv").open() as lines:
            rows += [line.rstrip("\n").split("\t") for line in lines]
    clicks = open_criteo_head()

    assert len(clicks) == len(rows) == 8000
    assert clicks.label.mean() == pytest.approx(0.216, abs=0.001)
    assert clicks.label.tolist() == [float(row[0]) for row in rows]
    for i in range(1, 14):
        logs = [math.log1p(max(int(row[i]), 0)) if row[i] else 0.0 for row in rows]
        np.testing.assert_allclose(clicks.dense[f"I{i}"], logs, rtol=1e-6)
    for i in range(1, 27):
        keys = [int(row[13 + i], 16) if row[13 + i] else MISSING_KEY for row in rows]
        assert clicks.features[f"C{i}"].tolist() == keys


def test_frappe_has_the_counts_that_its_authors_state(real_data):
    train, valid, test = open_frappe()

    assert [len(part) for part in (train, valid, test)] == [202_027, 57_722, 28_860]
    ids = {key for part in (train, valid, test) for c in part.features.values() for key in c}
    assert len(ids) <= 5382
    assert train.label.mean() == pytest.approx(1 / 3, abs=0.005)
    assert test.features["user"][0] == 204
    assert test.features["city"][2] == 5244


def test_movielens_stream_is_whole_and_in_order(real_data):
    clicks = open_movielens_stream()
    with (unpacked("movielens-stream") / "ratings_by_time.csv").open() as lines:
        rows = list(csv.DictReader(lines))

    assert len(clicks) == 200_592
    assert clicks.features["user"].tolist() == [int(row["user"]) for row in rows]
    assert clicks.features["movie"].tolist() == [int(row["movie"]) for row in rows]
    assert clicks.label.tolist() == [float(row["rating"]) >= 4 for row in rows]


def test_csv_reads_strings_and_numbers_and_fills_what_is_missing(tmp_path):
    text = "label,user,city,price\n1,7,Ulm,1.5\n0,,,\n"
    ratings = functools.partial(
        Csv, ["user"], strings=["city"], dense=["price"], missing_key=-1, missing_value=0.0
    )

    clicks = ratings(empty="missing").read(written(tmp_path, text))

    assert clicks.features["user"].tolist() == [7, -1]
    assert clicks.features["city"].tolist() == [int(string_keys(["Ulm"])[0]), -1]
    assert clicks.dense["price"].tolist() == [1.5, 0]
    # By default an empty string is a string, as in Parquet and in an exported model.
    clicks = ratings().read(tmp_path / "file.txt")
    assert clicks.features["city"].tolist() == string_keys(["Ulm", ""]).numpy().tolist()
    assert clicks.features["user"].tolist() == [7, -1]


def test_csv_says_how_to_take_what_is_missing(tmp_path):
    path = written(tmp_path, "label,user,price\n1,7,1.5\n0,,\n")

    with pytest.raises(DataError, match=r"line 3: expected a key \(missing_key= would replace"):
        Csv(["user"], dense=["price"], missing_value=0.0).read(path)
    with pytest.raises(
        DataError, match=r"line 3: expected a number \(missing_value= would replace"
    ):
        Csv(["user"], dense=["price"], missing_key=-1).read(path)


def test_a_file_of_any_size_is_cut_at_the_ends_of_lines(tmp_path, monkeypatch):
    lines = [f"{i % 2},{i},{'x' * (i % 7)}\n" for i in range(200)]
    path = written(tmp_path, "label,user,note\n" + "".join(lines)[:-1])
    whole = Csv(["user"]).read(path)
    for size in (1, 5, 64, 1000):
        monkeypatch.setattr(text, "UNIT_BYTES", size)
        units = Csv(["user"]).units(path)
        assert sum(unit.rows for unit in units) == 200
        assert units[-1].end == path.stat().st_size
        assert [unit.begin for unit in units[1:]] == [unit.end for unit in units[:-1]]
        parts = Csv(["user"]).read(path)
        assert parts.features["user"].tolist() == whole.features["user"].tolist()


@pytest.mark.parametrize("size", [8, 1 << 24])
def test_a_bad_line_is_named_in_whichever_unit_it_is(tmp_path, monkeypatch, size):
    monkeypatch.setattr(text, "UNIT_BYTES", size)
    path = written(tmp_path, FRAPPE + "0,1,2\n" * 50 + "0,?,2\n" + "0,1,2\n" * 50)
    with pytest.raises(DataError, match=r"file\.txt, column 'user', line 54: .*'\?'"):
        Csv(["user", "item"]).read(path)
    path.write_text(FRAPPE + "0,1,2\n" * 50 + "7,1,2\n")
    with pytest.raises(DataError, match=r"file\.txt, column 'label', line 54: expected a label"):
        Csv(["user", "item"]).read(path)


def test_a_file_with_a_header_alone_has_no_samples(tmp_path):
    assert len(Csv(["user"]).read(written(tmp_path, "label,user\n"))) == 0


def test_csv_without_a_header(tmp_path):
    path = written(tmp_path, "7;1;x;50\n8;0;y;51\n")
    names = ["user", "label", "other", "item"]
    clicks = Csv(["item", "user"], columns=names, delimiter=";").read(path)
    assert clicks.features["item"].tolist() == [50, 51]
    assert clicks.features["user"].tolist() == [7, 8]
    assert clicks.label.tolist() == [1, 0]
    path.write_text("7;1;x;50\n8;0;y;bad\n")
    with pytest.raises(DataError, match=r"line 2.*Received"):
        Csv(["item", "user"], columns=names, delimiter=";").read(path)
    with pytest.raises(ConfigError, match=r"without \['price'\]"):
        Csv(["user"], dense=["price"], columns=names).read(path)


def test_csv_has_lists_in_a_field(tmp_path):
    path = written(tmp_path, "label,clicked,tags\n1,3|-17|5,a b\n0,,\n1,4,b\n")
    file_format = Csv([], lists=["clicked"])
    assert file_format.read(path).features["clicked"].tolist() == [[3, -17, 5], [], [4]]
    both = Csv([], strings=["tags"], lists=["tags"], separator=" ", missing_key=-1)
    keys = [int(string_keys(text)) for text in ("a", "b")]
    assert both.read(path).features["tags"].tolist() == [keys, [], keys[1:]]
    path.write_text("label,clicked\n1,3\n0,4|x\n")
    with pytest.raises(
        DataError, match=r"line 3: expected whole numbers separated by '\|'.*Received: '4\|x'"
    ):
        file_format.read(path)


def test_hexadecimal_ids_are_told_of_strings(tmp_path):
    path = written(tmp_path, "label,user\n1,68fd1e64\n")
    with pytest.raises(DataError, match=r"line 2.*into strings=.*'68fd1e64'"):
        Csv(["user"]).read(path)
    assert Csv([], strings=["user"]).read(path).features["user"] == string_keys(["68fd1e64"])
