"""The slow twin of csrc/jetfast/hash.hpp: Spark's hash() and pmod in plain Python, over pyarrow arrays."""

import decimal
import math
import struct

import pyarrow as pa

_MASK = 0xFFFFFFFF
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
SEED = 42


def _rotate(value: int, bits: int) -> int:
    return (value << bits | value >> (32 - bits)) & _MASK


def _mix(state: int, word: int) -> int:
    word = _rotate(word * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    return (_rotate(state ^ word, 13) * 5 + 0xE6546B64) & _MASK


def _finish(state: int, length: int) -> int:
    state ^= length
    state = (state ^ state >> 16) * 0x85EBCA6B & _MASK
    state = (state ^ state >> 13) * 0xC2B2AE35 & _MASK
    return state ^ state >> 16


def hash_int(value: int, seed: int) -> int:
    return _finish(_mix(seed, value & _MASK), 4)


def hash_long(value: int, seed: int) -> int:
    return _finish(_mix(_mix(seed, value & _MASK), value >> 32 & _MASK), 8)


def hash_bytes(value: bytes, seed: int) -> int:
    whole = len(value) // 4 * 4
    for (word,) in struct.iter_unpack("<I", value[:whole]):
        seed = _mix(seed, word)
    for byte in value[whole:]:
        seed = _mix(seed, (byte - 256 if byte > 127 else byte) & _MASK)
    return _finish(seed, len(value))


def _big_integer_bytes(value: int) -> bytes:
    return value.to_bytes((value if value >= 0 else ~value).bit_length() // 8 + 1, "big", signed=True)


def _float_bits(value: float, integer: str, number: str, canonical_nan: int) -> int:
    if math.isnan(value):
        return canonical_nan
    return struct.unpack(integer, struct.pack(number, value + 0.0))[0]  # -0.0 + 0.0 is 0.0


def hash_value(value: object, data_type: pa.DataType, seed: int) -> int:
    """Hash one value, as `raw_values` gives it; None leaves the seed."""
    if value is None:
        return seed
    if pa.types.is_uint32(data_type) or pa.types.is_int64(data_type):
        return hash_long(value, seed)
    if pa.types.is_boolean(data_type) or pa.types.is_integer(data_type) or pa.types.is_date32(data_type):
        return hash_int(int(value), seed)
    if pa.types.is_float32(data_type):
        return hash_int(_float_bits(value, "<i", "<f", 0x7FC00000), seed)
    if pa.types.is_float64(data_type):
        return hash_long(_float_bits(value, "<q", "<d", 0x7FF8000000000000), seed)
    if pa.types.is_decimal(data_type):
        return hash_long(value, seed) if data_type.precision <= 18 else hash_bytes(_big_integer_bytes(value), seed)
    if pa.types.is_date64(data_type):
        return hash_int(value // 86_400_000, seed)
    if pa.types.is_time(data_type):
        return hash_long(value * (10**9 // _PER_SECOND[data_type.unit]), seed)
    if pa.types.is_timestamp(data_type) or pa.types.is_duration(data_type):
        return hash_long(value * 10**6 // _PER_SECOND[data_type.unit], seed)
    return hash_bytes(value.encode() if isinstance(value, str) else value, seed)


def raw_values(array: pa.Array) -> list[object]:
    """Python values: integers for temporal types and for decimals (unscaled), else as pyarrow gives them."""
    data_type = array.type
    if pa.types.is_dictionary(data_type):
        entries = raw_values(array.dictionary)
        return [None if code is None else entries[code] for code in array.indices.to_pylist()]
    if pa.types.is_decimal(data_type):
        with decimal.localcontext(prec=80):
            return [None if value is None else int(value.scaleb(data_type.scale)) for value in array.to_pylist()]
    if pa.types.is_temporal(data_type):
        return array.view(pa.int32() if data_type.bit_width == 32 else pa.int64()).to_pylist()
    return array.to_pylist()


def hash_rows(columns: list[pa.Array]) -> list[int]:
    """Spark's hash() of each row, as signed 32-bit integers."""
    hashes = [SEED] * len(columns[0])
    for column in columns:
        data_type = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        hashes = [hash_value(value, data_type, seed) for value, seed in zip(raw_values(column), hashes, strict=True)]
    return [value - 2**32 if value >= 2**31 else value for value in hashes]
