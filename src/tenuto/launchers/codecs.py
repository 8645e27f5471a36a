"""Files for results that JSON cannot say: arrays and frames, each by the format of its library.
Each codec is asked only for values of its own library, which is loaded then; nothing else imports one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from tenuto.light import late

if TYPE_CHECKING:
    import json
    import pickle
else:
    json = late("json")
    pickle = late("pickle")
numpy: Any = late("numpy")
pandas: Any = late("pandas")
polars: Any = late("polars")
testing: Any = late("pandas.testing")


class Codec(NamedTuple):
    """How the values of one library are kept."""

    name: str
    """The library, and for all but its first codec what it keeps, as in ``polars.series``."""
    kinds: tuple[str, ...]
    """The names of its classes."""
    suffix: str
    write: Callable[[str, Any], None]
    """Writes a value to a path; `TypeError` or `ValueError` for one that would not come back as it was."""
    read: Callable[[str], Any]


def codec_for(value: object) -> Codec | None:
    """The codec that keeps a value; None if none does."""
    for cls in type(value).__mro__:
        library = cls.__module__.partition(".")[0]
        for codec in CODECS.values():
            if codec.name.partition(".")[0] == library and cls.__name__ in codec.kinds:
                return codec
    return None


def _write_array(path: str, value: Any) -> None:
    if value.dtype.hasobject:
        raise TypeError("an array of Python objects cannot be kept without pickle")
    numpy.save(path, value, allow_pickle=False)


def _read_array(path: str) -> Any:
    return numpy.load(path, allow_pickle=False)


_TEXT = "text"


def _write_pandas(path: str, value: Any) -> None:
    """The columns and the index as arrays of numpy's, in one archive: pandas has no format of its own."""
    frame = value.to_frame() if isinstance(value, pandas.Series) else value
    if frame.index.nlevels > 1 or frame.columns.nlevels > 1:
        raise TypeError("a frame with several levels of an index cannot be kept: use reset_index()")
    parts = [frame.index.to_series(), *(frame.iloc[:, number] for number in range(frame.shape[1]))]
    labels = [frame.index.name, *frame.columns]
    if not all(label is None or type(label) in (str, int) for label in labels):
        raise TypeError("the columns of a frame to be kept are called by text or whole numbers")
    arrays = {str(number): _column(part) for number, part in enumerate(parts)}
    about = {
        "labels": labels,
        "columns_name": frame.columns.name,
        "dtypes": [str(part.dtype) for part in parts],
        "is_range": isinstance(frame.index, pandas.RangeIndex)
        and frame.index.start == 0 == frame.index.step - 1,
        "is_series": isinstance(value, pandas.Series),
        "name": getattr(value, "name", None) if isinstance(value, pandas.Series) else None,
    }
    with open(path, "wb") as stream:
        numpy.savez(stream, about=numpy.array(json.dumps(about)), **arrays)
    if not _same(_read_pandas(path), value):
        raise TypeError(
            f"a {type(value).__name__} of {', '.join(sorted(set(about['dtypes'])))} would not come back"
        )


def _column(part: Any) -> Any:
    if part.dtype.kind in "biufcmM" and isinstance(part.dtype, numpy.dtype):
        return part.to_numpy()
    if all(type(item) is str for item in part):
        return numpy.array([*part, ""])[:-1]  # at least one character wide
    raise TypeError(f"a column of {part.dtype} cannot be kept: make it numbers, times or texts")


def _read_pandas(path: str) -> Any:
    with numpy.load(path, allow_pickle=False) as stored:
        about = json.loads(str(stored["about"]))
        parts = [
            pandas.Series(
                stored[str(number)].astype(object)
                if stored[str(number)].dtype.kind == "U"
                else stored[str(number)],
                dtype=kind,
            )
            for number, kind in enumerate(about["dtypes"])
        ]
    first, *rest = parts
    index = pandas.RangeIndex(len(first)) if about["is_range"] else pandas.Index(first)
    index.name = about["labels"][0]
    columns = pandas.Index(about["labels"][1:], name=about["columns_name"])
    frame = pandas.concat(rest, axis=1) if rest else pandas.DataFrame(index=range(len(first)))
    frame.index, frame.columns = index, columns
    if not about["is_series"]:
        return frame
    series = frame.iloc[:, 0]
    series.name = about["name"]
    return series


def _same(read: Any, value: Any) -> bool:
    compare = testing.assert_series_equal if read.ndim == 1 else testing.assert_frame_equal
    try:
        compare(read, value, check_freq=False)
    except AssertionError:
        return False
    return True


def _write_polars(path: str, value: Any) -> None:
    if isinstance(value, polars.LazyFrame):
        raise TypeError("a LazyFrame has no rows yet: return its collect()")
    frame = value.to_frame() if isinstance(value, polars.Series) else value
    if any(kind == polars.Object for kind in frame.dtypes):
        raise TypeError("a column of Python objects cannot be kept without pickle")
    frame.write_ipc(path)


def _read_polars(path: str) -> Any:
    with open(path, "rb") as stream:
        return polars.read_ipc(stream.read())


def _write_pickle(path: str, value: Any) -> None:
    try:
        content = pickle.dumps(value)
    except Exception as error:
        raise TypeError(f"it cannot be pickled: {error}") from error
    with open(path, "wb") as stream:
        stream.write(content)


def _read_pickle(path: str) -> Any:
    with open(path, "rb") as stream:
        return pickle.load(stream)


PICKLE = Codec("pickle", (), "pickle", _write_pickle, _read_pickle)
"""For a task that asks for it: reading it runs code."""
CODECS = {
    "numpy": Codec("numpy", ("ndarray",), "npy", _write_array, _read_array),
    "pandas": Codec("pandas", ("DataFrame", "Series"), "npz", _write_pandas, _read_pandas),
    "polars": Codec("polars", ("DataFrame", "LazyFrame"), "arrow", _write_polars, _read_polars),
    "polars.series": Codec(
        "polars.series", ("Series",), "arrow", _write_polars, lambda path: _read_polars(path).to_series()
    ),
    "pickle": PICKLE,
}
"""By name."""
