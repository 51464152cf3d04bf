"""The form in which batches carry Arrow types: what kernels and Arrow's functions cannot work on is converted.

- An extension type is carried as its storage. Fields keep the type, and `restored_schema` puts it back at the exit.
- Run-end-encoded columns are decoded.
- A dictionary keeps its codes if its values are flat. A dictionary of views becomes one of text or bytes. A null among
  the values of a dictionary is taken out: its rows are null.
- Views of lists become lists: Arrow casts them to damaged ones where a list is null.
- Inside lists, structs and maps, views become text or bytes, and dictionaries and run ends are decoded.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

TYPE_KEY = b"jetfast.type"
"""Metadata of a field whose column is carried as the storage of an extension type: a schema of that field."""

_types = pa.types


def carried_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type in which a column of this type is carried. TypeError, saying what to do, if there is none."""
    return _carried(data_type, inside=False)


def carried_field(field: pa.Field) -> pa.Field:
    """Return the field of the carried column: the same object if nothing changes. TypeError as `carried_type`."""
    data_type = carried_type(field.type)
    if data_type == field.type:
        return field
    metadata = dict(field.metadata or {})
    if storage_type(field.type) == data_type and not _types.is_dictionary(data_type):  # Arrow cannot read those again
        metadata[TYPE_KEY] = pa.schema([field.remove_metadata()]).serialize().to_pybytes()
    return pa.field(field.name, data_type, field.nullable, metadata or None)


def carried_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema of the carried columns: the same object if nothing changes. TypeError names the column."""
    fields = []
    changed = False
    for field in schema:
        try:
            carried = carried_field(field)
        except TypeError as error:
            raise TypeError(f"column {field.name!r} of type {field.type} {error}") from error
        changed |= carried is not field
        fields.append(carried)
    return pa.schema(fields, metadata=schema.metadata) if changed else schema


def restored_schema(schema: pa.Schema) -> pa.Schema:
    """Return the schema with the extension types that `carried_schema` took off: the same object if there are none."""
    if not any(field.metadata and TYPE_KEY in field.metadata for field in schema):
        return schema
    return pa.schema([_restored(field) for field in schema], metadata=schema.metadata)


def _restored(field: pa.Field) -> pa.Field:
    metadata = dict(field.metadata or {})
    kept = metadata.pop(TYPE_KEY, None)
    if kept is None:
        return field
    # Where the type is not registered this is its storage, with Arrow's own metadata that name it.
    original = pa.ipc.read_schema(pa.py_buffer(kept)).field(0)
    if storage_type(original.type) != field.type:
        return field.with_metadata(metadata or None)
    return (
        original.with_name(field.name)
        .with_nullable(field.nullable)
        .with_metadata(metadata | (original.metadata or {}) or None)
    )


def storage_type(data_type: pa.DataType) -> pa.DataType:
    """Return the type without extension types, at any depth; its arrays have the same buffers."""
    if isinstance(data_type, pa.BaseExtensionType):
        return storage_type(data_type.storage_type)
    return _with_parts(data_type, storage_type)


def _carried(data_type: pa.DataType, *, inside: bool) -> pa.DataType:
    """`inside`: of what is nested, a dictionary or run-end encoded."""
    if isinstance(data_type, pa.BaseExtensionType):
        return _carried(data_type.storage_type, inside=inside)
    if _types.is_run_end_encoded(data_type):
        return _carried(data_type.value_type, inside=True)
    if _types.is_dictionary(data_type):
        values = _carried(data_type.value_type, inside=True)
        if inside or _types.is_nested(values):
            return values
        return pa.dictionary(data_type.index_type, values, data_type.ordered)
    if inside and _types.is_string_view(data_type):
        return pa.string()
    if inside and _types.is_binary_view(data_type):
        return pa.binary()
    if _types.is_list_view(data_type) or _types.is_large_list_view(data_type):
        item = data_type.value_field.with_type(_carried(data_type.value_type, inside=True))
        return pa.list_(item) if _types.is_list_view(data_type) else pa.large_list(item)
    carried = _with_parts(data_type, lambda part: _carried(part, inside=True))
    if _types.is_union(data_type) and carried != storage_type(data_type):
        raise TypeError(
            "cannot be carried: a union holds views, dictionaries or run ends; make columns of its members first"
        )
    return carried


def _with_parts(data_type: pa.DataType, change: Callable[[pa.DataType], pa.DataType]) -> pa.DataType:
    """A type whose parts are changed; the same object if none is."""
    parts = [data_type.field(index) for index in range(data_type.num_fields)]
    if _types.is_dictionary(data_type):
        values = change(data_type.value_type)
        return (
            data_type
            if values == data_type.value_type
            else pa.dictionary(data_type.index_type, values, data_type.ordered)
        )
    if _types.is_run_end_encoded(data_type):
        values = change(data_type.value_type)
        return data_type if values == data_type.value_type else pa.run_end_encoded(data_type.run_end_type, values)
    changed = [part.with_type(change(part.type)) for part in parts]
    if not parts or all(mine.type == its.type for mine, its in zip(changed, parts, strict=True)):
        return data_type
    if _types.is_struct(data_type):
        return pa.struct(changed)
    if _types.is_map(data_type):
        pair = [data_type.key_field, data_type.item_field]
        key, item = (part.with_type(change(part.type)) for part in pair)
        return pa.map_(key, item, data_type.keys_sorted)
    if _types.is_union(data_type):
        return pa.union(changed, data_type.mode, data_type.type_codes)
    if _types.is_fixed_size_list(data_type):
        return pa.list_(changed[0], data_type.list_size)
    makers = {
        "list": pa.list_, "large_list": pa.large_list, "list_view": pa.list_view, "large_list_view": pa.large_list_view,
    }  # fmt: skip
    return next(make for name, make in makers.items() if getattr(_types, f"is_{name}")(data_type))(changed[0])


# ---- arrays ----------------------------------------------------------------------------------------------------------


def carried_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return a record batch with its columns as they are carried. ValueError names a column that cannot be."""
    try:
        schema = carried_schema(rows.schema)
    except TypeError as error:
        raise ValueError(str(error)) from error
    columns = []
    for field, column in zip(schema, rows.columns, strict=True):
        try:
            columns.append(carried_array(column, field.type))
        except (pa.ArrowException, ValueError) as error:
            raise ValueError(f"column {field.name!r} of type {column.type} cannot be converted: {error}") from error
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def carried_array(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    """Return an array in its carried type, or in the one that it has inside others."""
    data_type = array.type
    if data_type == wanted and not (_types.is_dictionary(data_type) and array.dictionary.null_count):
        return array
    if isinstance(data_type, pa.BaseExtensionType):
        return carried_array(array.storage, wanted)
    if _types.is_run_end_encoded(data_type):
        return carried_array(array.values, wanted).take(pa.array(_runs_of_rows(array)))
    if _types.is_dictionary(data_type):
        if _types.is_dictionary(wanted):
            values = carried_array(array.dictionary, wanted.value_type)
            codes = array.indices
            if values.null_count:  # a row without a value must look like one
                there = pc.is_valid(values)
                places = np.cumsum(there.to_numpy(zero_copy_only=False)) - 1
                codes = pa.array(places, mask=pc.invert(there).to_numpy(zero_copy_only=False)).take(codes)
                values = values.drop_null()
            return pa.DictionaryArray.from_arrays(codes.cast(wanted.index_type), values, ordered=wanted.ordered)
        return carried_array(array.dictionary, wanted).take(array.indices)
    if _types.is_nested(data_type):
        return _carried_nested(array, wanted)
    return array.cast(wanted)


def _runs_of_rows(array: pa.Array) -> Any:
    """The run in which each row of a run-end-encoded array lies."""
    rows = np.arange(array.offset, array.offset + len(array))
    return np.searchsorted(array.run_ends.to_numpy(), rows, side="right")


def _carried_nested(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if _types.is_union(wanted):  # only extension types are taken off
        return pa.Array._import_from_c_capsule(wanted.__arrow_c_schema__(), array.__arrow_c_array__()[1])
    count = len(array)
    buffers = [None]
    if array.null_count:
        valid = pc.is_valid(array).to_numpy(zero_copy_only=False)
        buffers = [pa.py_buffer(np.packbits(valid, bitorder="little"))]
    if _types.is_struct(wanted):
        children = [carried_array(array.field(index), wanted.field(index).type) for index in range(wanted.num_fields)]
    elif _types.is_fixed_size_list(wanted):
        size = wanted.list_size
        children = [carried_array(array.values.slice(array.offset * size, count * size), wanted.value_type)]
    elif _types.is_list_view(array.type) or _types.is_large_list_view(array.type):
        starts, sizes = array.offsets.to_numpy().astype(np.int64), array.sizes.to_numpy().astype(np.int64)
        if array.null_count:
            sizes = np.where(valid, sizes, 0)
        offsets = np.concatenate([[0], np.cumsum(sizes)])
        places = np.repeat(starts - offsets[:-1], sizes) + np.arange(offsets[-1])
        first, behind = (int(places.min()), int(places.max()) + 1) if len(places) else (0, 0)
        items = carried_array(array.values.slice(first, behind - first), wanted.value_type)
        buffers.append(_numbers(offsets.astype(np.int32 if _types.is_list(wanted) else np.int64)))
        children = [items.take(pa.array(places - first))]
    else:
        offsets = array.offsets.to_numpy()
        first, behind = int(offsets[0]), int(offsets[-1])
        buffers.append(_numbers(offsets - first))
        if _types.is_map(wanted):
            keys = carried_array(array.keys.slice(first, behind - first), wanted.key_type)
            items = carried_array(array.items.slice(first, behind - first), wanted.item_type)
            children = [pa.StructArray.from_arrays([keys, items], fields=[wanted.key_field, wanted.item_field])]
        else:
            children = [carried_array(array.values.slice(first, behind - first), wanted.value_type)]
    return pa.Array.from_buffers(wanted, count, buffers, array.null_count, 0, children)


def _numbers(values: Any) -> pa.Buffer:
    return pa.py_buffer(np.ascontiguousarray(values))
