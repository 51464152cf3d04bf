"""What a file may ask of memory and stack at most: it is checked before Arrow sees its bytes."""

from dataclasses import dataclass

import pyarrow as pa

from jetfast.kernels.json_bounds import count_columns, find_too_deep


@dataclass(frozen=True)
class Bounds:
    """Text beyond a bound is a rejected row if it is one line, else the file is refused."""

    depth: int = 64
    """Lists and objects within each other, a JSON record itself included."""
    columns: int = 10_000
    line_bytes: int = 16 << 20
    batch_bytes: int = 256 << 20
    """Of rows that are decoded at once."""

    def values(self, schema: pa.Schema) -> int:
        """Return how many JSON objects and lists may be decoded at once: missing fields take memory, too."""
        return max(1, self.batch_bytes // max(1, sum(slot_bytes(field.type) for field in schema)))


DEFAULT_BOUNDS = Bounds()


def check_json(data: bytes, bounds: Bounds) -> None:
    """Raise ValueError if some record nests too deep. The message ends with the record's number in `data`."""
    found = find_too_deep(data, bounds.depth)
    if found >= 0:
        row = data.count(b"\n", 0, found)
        raise ValueError(f"it nests more than {bounds.depth} lists and objects within each other in row {row}")


def check_json_columns(data: bytes, bounds: Bounds) -> int:
    """Return how many columns JSON records have together. Raises ValueError if there are too many."""
    found = count_columns(data, bounds.columns)
    check_columns(found, bounds)
    return found


def check_columns(count: int, bounds: Bounds) -> None:
    """Raise ValueError if a file has too many columns, nested ones included."""
    if count > bounds.columns:
        raise ValueError(
            f"it has more than {bounds.columns} columns; columns_max= of jf.files says how many it may have"
        )


def check_schema(schema: pa.Schema, bounds: Bounds) -> None:
    """Raise ValueError if a schema has too many columns or types that nest too deep."""
    check_columns(len(schema), bounds)
    level = [field.type for field in schema]
    count, depth = 0, 0
    while level:
        count, depth = count + len(level), depth + 1
        check_columns(count, bounds)
        if depth > bounds.depth:
            raise ValueError(
                f"its types nest more than {bounds.depth} levels deep; depth_max= of jf.files says how deep they may"
            )
        level = [parent.field(index).type for parent in level for index in range(parent.num_fields)]


def slot_bytes(column_type: pa.DataType) -> int:
    """Return about how much memory a row of a column takes at least, null or not."""
    types = pa.types
    if types.is_struct(column_type):
        return 1 + sum(slot_bytes(field.type) for field in column_type)
    if types.is_fixed_size_list(column_type):
        return 1 + int(column_type.list_size) * slot_bytes(column_type.value_type)
    if types.is_dictionary(column_type):
        return 1 + slot_bytes(column_type.index_type)
    try:
        return 1 + int(column_type.bit_width) // 8
    except ValueError:  # of varying length: an offset
        return 9
