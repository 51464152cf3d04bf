"""Slow twins of joins: plain Python over rows (k, t, id) and watermarks, one at a time."""

from jetfast.core.items import Watermark
from jetfast.types import MAX_TIME, MIN_TIME


def result(left, right, **added):
    """A row of the result; one of the two may be None."""
    key = (left or right)["k"]
    return {
        "k": key,
        "left_id": left and left["left_id"],
        "right_id": right and right["right_id"],
        **added,
    }


def joins(left, right):
    """Equal keys; null equals nothing."""
    return left["k"] is not None and left["k"] == right["k"]


class SlowWindowJoin:
    """All rows are kept for ever; each window is looked at when the watermark passes its end."""

    def __init__(self, size, slide, keeps):
        self.size, self.slide = size, slide
        self.keeps = keeps
        self.rows = ([], [])
        self.watermark = MIN_TIME
        self.late = 0

    def last_window(self, time):
        return time // self.slide * self.slide + self.size

    def take(self, side, row):
        if self.last_window(row["t"]) <= self.watermark:
            self.late += 1
            return []
        self.rows[side].append(row)
        return []

    def advance(self, watermark):
        times = [row["t"] for rows in self.rows for row in rows]
        ends = sorted(
            {
                time // self.slide * self.slide + self.slide + k * self.slide
                for time in times
                for k in range(self.size // self.slide)
            }
        )
        output = []
        for end in ends:
            if self.watermark < end <= watermark:
                output += self.window(end)
        self.watermark = watermark
        return [*output, *([Watermark(watermark)] if watermark < MAX_TIME else [])]

    def window(self, end):
        left, right = ([row for row in rows if end - self.size <= row["t"] < end] for rows in self.rows)
        added = {"window_start": end - self.size, "window_end": end}
        output = [result(one, other, **added) for one in left for other in right if joins(one, other)]
        if self.keeps[0]:
            output += [result(one, None, **added) for one in left if not any(joins(one, other) for other in right)]
        if self.keeps[1]:
            output += [result(None, one, **added) for one in right if not any(joins(other, one) for other in left)]
        return output


class SlowAsofJoin:
    """All rows are kept for ever; a left row is looked at when the watermark has passed it."""

    def __init__(self, reach, keeps_left):
        self.reach, self.keeps_left = reach, keeps_left
        self.left, self.right = [], []
        self.watermark = MIN_TIME

    def take(self, side, row):
        if row["t"] >= self.watermark:
            (self.right if side else self.left).append(row)
        return []

    def advance(self, watermark):
        due = [row for row in self.left if row["t"] < watermark]
        self.left = [row for row in self.left if row["t"] >= watermark]
        self.watermark = watermark
        output = []
        for row in due:
            found = [other for other in self.right if joins(row, other) and 0 <= row["t"] - other["t"] <= self.reach]
            best = max(found, key=lambda other: (other["t"], other["right_id"]), default=None)
            if best is not None or self.keeps_left:
                output.append(result(row, best, t=row["t"]))
        return [*output, *([Watermark(watermark)] if watermark < MAX_TIME else [])]


class SlowIntervalJoin:
    """All rows are kept for ever; each new one is compared with all of the other side."""

    def __init__(self, lower, upper, keeps):
        self.lower, self.upper = lower, upper
        self.keeps = keeps
        self.held = max(upper if keeps[0] else 0, -lower if keeps[1] else 0, 0)
        self.rows = ([], [])
        self.matched = ([], [])
        self.watermark = self.sent = MIN_TIME
        self.late = 0

    def take(self, side, row):
        if row["t"] < self.watermark:
            self.late += 1
            return []
        output = []
        met = False
        for number, other in enumerate(self.rows[1 - side]):
            left, right = (row, other) if side == 0 else (other, row)
            if joins(left, right) and self.lower <= right["t"] - left["t"] <= self.upper:
                output.append(result(left, right, time=max(left["t"], right["t"])))
                met = self.matched[1 - side][number] = True
        self.rows[side].append(row)
        self.matched[side].append(met)
        return output

    def advance(self, watermark):
        output = []
        for side, reach in ((0, self.upper), (1, -self.lower)):
            for number, row in enumerate(self.rows[side]):
                if self.keeps[side] and not self.matched[side][number] and row["t"] + reach < watermark:
                    self.matched[side][number] = True
                    output.append(result(row if side == 0 else None, row if side else None, time=row["t"]))
        self.watermark = watermark
        if watermark < MAX_TIME and watermark - self.held > self.sent:
            self.sent = watermark - self.held
            output.append(Watermark(self.sent))
        return output
