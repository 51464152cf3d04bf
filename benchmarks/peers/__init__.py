"""The same work by other engines, one file each: each in its best forms, on one thread, from tables it holds already.

Groups come back as (key, frame, count, sum): numpy arrays by those names, made outside the clock by `*_arrays`.
"""
