"""The queries of NEXMark (those of Tucker et al., 2008, and of Apache Beam's and Flink's versions), by their names."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from jetfast.api.expressions import Expression, col, lit, when
from jetfast.api.stage import Stage
from jetfast.connectors.memory import memory
from jetfast.core import aggregate_functions as aggregates
from jetfast.core.aggregate import Aggregate
from jetfast.core.windows import session, sliding, tumbling
from jetfast.nexmark.query import Query, Streams

EUROS_OF_A_DOLLAR = 0.908
SIDE_ROWS = 10_000
LONGEST_AUCTION = "1h"
_LOW, _HIGH = 10_000, 1_000_000  # prices that part the three ranks


def pass_on(streams: Streams) -> Stage:
    return streams.bids.select("auction", "bidder", "price", "date_time", "extra")


def convert_prices(streams: Streams) -> Stage:
    euros = (col("price") * EUROS_OF_A_DOLLAR).alias("price")
    return streams.bids.select("auction", "bidder", euros, "date_time", "extra")


def select_auctions(streams: Streams) -> Stage:
    return streams.bids.where(col("auction") % 123 == 0).select("auction", "price")


def find_local_sellers(streams: Streams) -> Stage:
    people = streams.persons.where(col("state").isin("OR", "ID", "CA")).select("id", "name", "city", "state")
    joined = streams.auctions.where(col("category") == 10).hash_join(people, left_on="seller", right_on="id")
    return joined.select("name", "city", "state", "id")


def valid_bids(streams: Streams) -> Stage:
    """Return the bids that came while their auctions were open, with their categories and sellers."""
    auctions = streams.auctions.select("id", "category", "seller", "expires", col("date_time").alias("opened_at"))
    bids = streams.bids.select("auction", "bidder", "price", "date_time")
    joined = bids.hash_join(auctions, left_on="auction", right_on="id", name="valid")
    return joined.where(col("date_time").between(col("opened_at"), col("expires")))


def average_prices(streams: Streams) -> Stage:
    closed = valid_bids(streams).group_by("auction", "category").window(session(LONGEST_AUCTION))
    final = (
        closed.agg(final=aggregates.max("price"), name="final").drop("window_start").rename({"window_end": "closed_at"})
    )
    return final.group_by("category").window(tumbling("24h")).agg(price=aggregates.mean("final"), name="categories")


def average_last_prices(streams: Streams) -> Stage:
    closed = valid_bids(streams).group_by("auction", "seller").window(session(LONGEST_AUCTION))
    final = (
        closed.agg(final=aggregates.max("price"), name="final").drop("window_start").rename({"window_end": "closed_at"})
    )
    last = aggregates.top_n("final", 10, by="closed_at")
    days = final.group_by("seller").window(tumbling("24h")).agg(last=last, name="last auctions")
    prices = days.drop("window_start").rename({"window_end": "day_end"}).explode("last")
    averages = prices.group_by("seller").window(tumbling("24h")).agg(price=aggregates.mean("last"), name="sellers")
    return averages.select("seller", "price", "window_start")


def find_winning_bids(streams: Streams) -> Stage:
    closed = valid_bids(streams).group_by("auction", "category").window(session(LONGEST_AUCTION))
    bid = ["bidder", "price", "date_time"]
    winners = closed.agg(best=aggregates.top_n(bid, 1, by="price"), name="winners")
    return winners.explode("best").select("auction", "category", *fields_of("best", bid))


def find_last_bids(streams: Streams) -> Stage:
    names = ("price", "channel", "url", "date_time", "extra")
    last = {name: aggregates.last(name) for name in names}
    windows = streams.bids.group_by("bidder", "auction").window(tumbling("24h"))
    return windows.agg(**last, name="last bids").select("bidder", "auction", *names)


def find_top_bids(streams: Streams) -> Stage:
    bid = ["bidder", "price", "date_time"]
    best = aggregates.top_n(bid, 10, by="price")
    windows = streams.bids.group_by("auction").window(tumbling("24h")).agg(best=best, name="top bids")
    return windows.explode("best").select("auction", *fields_of("best", bid))


def fields_of(struct: str, names: Sequence[str]) -> list[Expression]:
    """Return the fields of a column of structs as columns."""
    return [lit(pc.struct_field(pc.field(struct), name)).alias(name) for name in names]


def find_hot_items(streams: Streams) -> Stage:
    counts = streams.bids.group_by("auction").window(sliding("10s", "2s")).agg(bids=aggregates.count(), name="counts")
    most = counts.window(tumbling("2s")).agg(most=aggregates.max("bids"), name="most")
    named = counts.rename({"window_start": "starts", "window_end": "ends"})
    hot = named.window_join(as_side(most), tumbling("2s"), left_on="bids", right_on="most", name="hot")
    return hot.select("auction", "bids", col("starts").alias("window_start"), col("ends").alias("window_end"))


def find_highest_bids(streams: Streams) -> Stage:
    bids = streams.bids.select("auction", "bidder", "price", "date_time")
    most = bids.window(tumbling("10s")).agg(most=aggregates.max("price"), name="most")
    highest = bids.window_join(as_side(most), tumbling("10s"), left_on="price", right_on="most", name="highest")
    return highest.select("auction", "price", "bidder", "date_time")


def find_new_sellers(streams: Streams) -> Stage:
    sellers = streams.auctions.group_by("seller").window(tumbling("10s"))
    selling = as_side(sellers.agg(auctions=aggregates.count(), name="sellers"))
    people = streams.persons.select("id", "name", "date_time")
    joined = people.window_join(selling, tumbling("10s"), left_on="id", right_on="seller", name="new sellers")
    return joined.select("id", "name", "window_start")


def as_side(windows: Stage) -> Stage:
    """Return results of windows as the right side of a window join, which has columns of these names itself."""
    return windows.drop("window_start").rename({"window_end": "closed_at"})


def log_bids(streams: Streams) -> Stage:
    time = pc.field("date_time")
    day, minute = (lit(pc.strftime(time, format=form)) for form in ("%Y-%m-%d", "%H:%M"))
    bid = ("auction", "bidder", "price", "date_time", "extra")
    return streams.bids.select(*bid, day.alias("day"), minute.alias("minute"))


def count_in_sessions(streams: Streams) -> Stage:
    return streams.bids.group_by("bidder").window(session("10s")).agg(bids=aggregates.count(), name="sessions")


def count_as_seen(streams: Streams) -> Stage:
    bids = streams.see_bids("bidder")
    return bids.group_by("bidder").window(tumbling("10s")).agg(bids=aggregates.count(), name="counts")


def look_up_values(streams: Streams) -> Stage:
    keys = pa.array(range(SIDE_ROWS), pa.int64())
    values = pa.array([f"value-{key}" for key in range(SIDE_ROWS)])
    side = streams.pipeline.read(memory(pa.table({"key": keys, "value": values})), name="side")
    bids = streams.bids.select("auction", "bidder", "price", "date_time", (col("auction") % SIDE_ROWS).alias("key"))
    return bids.hash_join(side, on="key", name="values").drop("key")


def calculate(streams: Streams) -> Stage:
    euros = col("price") * EUROS_OF_A_DOLLAR
    hour = lit(pc.hour(pc.field("date_time")))
    time_of_day = (
        when(hour.between(8, 18), "dayTime").when((hour <= 6) | (hour >= 20), "nightTime").otherwise("otherTime")
    )
    letters = lit(pc.count_substring(pc.field("extra"), pattern="c"))
    return streams.bids.where((euros > 1_000_000) & (euros < 50_000_000)).select(
        "auction",
        "bidder",
        euros.alias("price"),
        time_of_day.alias("time_of_day"),
        "date_time",
        "extra",
        letters.alias("c_count"),
    )


def in_ranks(column: str) -> dict[str, Expression]:
    """Return the column where the price is of the lower, middle and upper rank, null elsewhere."""
    price = col("price")
    conditions = {"low": price < _LOW, "middle": (price >= _LOW) & (price < _HIGH), "high": price >= _HIGH}
    return {
        rank: when(condition, col(column)).otherwise(lit(pa.scalar(None, pa.int64())))
        for rank, condition in conditions.items()
    }


def rank_counts() -> dict[str, Aggregate]:
    counts = {f"{rank}_bids": aggregates.count(price) for rank, price in in_ranks("price").items()}
    return {"bids": aggregates.count(), **counts}


def distinct_counts() -> dict[str, Aggregate]:
    counts = {}
    for column in ("bidder", "auction"):
        counts[f"{column}s"] = aggregates.count_distinct(column)
        for rank, values in in_ranks(column).items():
            counts[f"{rank}_{column}s"] = aggregates.count_distinct(values)
    return counts


def report_days(streams: Streams) -> Stage:
    return streams.bids.window(tumbling("24h")).agg(**rank_counts(), **distinct_counts(), name="days")


def report_channels(streams: Streams) -> Stage:
    days = streams.bids.group_by("channel").window(tumbling("24h"))
    return days.agg(**rank_counts(), **distinct_counts(), last_at=aggregates.max("date_time"), name="channels")


def report_auctions(streams: Streams) -> Stage:
    prices = {
        "least": aggregates.min("price"),
        "greatest": aggregates.max("price"),
        "mean": aggregates.mean("price"),
        "total": aggregates.sum("price"),
    }
    return (
        streams.bids.group_by("auction").window(tumbling("24h")).agg(**rank_counts(), **prices, name="auctions of days")
    )


def expand_bids(streams: Streams) -> Stage:
    auctions = streams.auctions.where(col("category") == 10).select(
        "id", "item_name", "description", "initial_bid", "reserve", "expires", "seller", "category",
        col("date_time").alias("opened_at"),
    )  # fmt: skip
    return streams.bids.hash_join(auctions, left_on="auction", right_on="id", name="expanded")


def add_channel_ids(streams: Streams) -> Stage:
    channel = lit(pc.utf8_lower(pc.field("channel")))
    in_url = lit(pc.struct_field(pc.extract_regex(pc.field("url"), pattern="(?:&|^)channel_id=(?P<id>[^&]*)"), "id"))
    known = when(channel == "apple", "0").when(channel == "google", "1").when(channel == "facebook", "2")
    ids = known.when(channel == "baidu", "3").otherwise(in_url)
    bids = streams.bids.select("auction", "bidder", "price", "channel", ids.alias("channel_id"))
    return bids.where(col("channel_id").is_valid())


def split_urls(streams: Streams) -> Stage:
    folders = [
        lit(pc.list_element(pc.split_pattern(pc.field("url"), pattern="/"), place)).alias(f"dir{place - 2}")
        for place in (3, 4, 5)
    ]
    return streams.bids.select("auction", "bidder", "price", "channel", *folders)


_RANKS_SQL = f"""count(*) AS bids,
       count(*) FILTER (price < {_LOW}) AS low_bids,
       count(*) FILTER (price >= {_LOW} AND price < {_HIGH}) AS middle_bids,
       count(*) FILTER (price >= {_HIGH}) AS high_bids"""
_DISTINCT_SQL = ",\n       ".join(
    f"""count(DISTINCT {column}) AS {column}s,
       count(DISTINCT {column}) FILTER (price < {_LOW}) AS low_{column}s,
       count(DISTINCT {column}) FILTER (price >= {_LOW} AND price < {_HIGH}) AS middle_{column}s,
       count(DISTINCT {column}) FILTER (price >= {_HIGH}) AS high_{column}s"""
    for column in ("bidder", "auction")
)
_VALID_SQL = (
    """FROM bid JOIN auction ON bid.auction = auction.id AND bid.date_time BETWEEN auction.date_time AND expires"""
)
_ONE_SESSION = (
    "The bids of an auction are one session: none lasts an hour, with one event a second of event time or more."
)
_DAY_SQL = """time_bucket(INTERVAL '24 hours', date_time) AS window_start,
       window_start + INTERVAL '24 hours' AS window_end"""

QUERIES = {
    query.name: query
    for query in (
        Query(
            "q0",
            "all bids as they are: what the engine itself costs",
            {"bid": ("auction", "bidder", "price", "date_time", "extra")},
            pass_on,
            "SELECT auction, bidder, price, date_time, extra FROM bid",
        ),
        Query(
            "q1",
            "bids with their prices in euros",
            {"bid": ("auction", "bidder", "price", "date_time", "extra")},
            convert_prices,
            f"SELECT auction, bidder, price * {EUROS_OF_A_DOLLAR}::DOUBLE AS price, date_time, extra FROM bid",
            "Prices are floats, as in Beam; Flink has decimals.",
        ),
        Query(
            "q2",
            "bids for some auctions",
            {"bid": ("auction", "price")},
            select_auctions,
            "SELECT auction, price FROM bid WHERE auction % 123 = 0",
        ),
        Query(
            "q3",
            "who sells in category 10 in three states",
            {"person": ("id", "name", "city", "state"), "auction": ("id", "seller", "category")},
            find_local_sellers,
            """SELECT name, city, state, auction.id AS id
FROM auction JOIN person ON seller = person.id
WHERE category = 10 AND state IN ('OR', 'ID', 'CA')""",
            "Persons are read first, as a table; on streams without end it would be a join with an interval.",
        ),
        Query(
            "q4",
            "the average of the final prices of auctions, by category",
            {"bid": ("auction", "price", "date_time"), "auction": ("id", "category", "date_time", "expires")},
            average_prices,
            f"""WITH closed AS (
    SELECT id, category, max(price) AS final, max(bid.date_time) + INTERVAL '1 hour' AS closed_at
    {_VALID_SQL}
    GROUP BY id, category
)
SELECT category, time_bucket(INTERVAL '24 hours', closed_at) AS window_start,
       window_start + INTERVAL '24 hours' AS window_end, avg(final) AS price
FROM closed
GROUP BY ALL""",
            f"Auctions are read first, as a table. {_ONE_SESSION} Averages are those of days.",
        ),
        Query(
            "q5",
            "auctions with the most bids in the last ten seconds, every two",
            {"bid": ("auction", "date_time")},
            find_hot_items,
            """WITH counts AS (
    SELECT auction, count(*) AS bids,
           time_bucket(INTERVAL '2 seconds', date_time) - slide * INTERVAL '2 seconds' AS window_start
    FROM bid, range(5) slides(slide)
    GROUP BY ALL
)
SELECT auction, bids, window_start, window_start + INTERVAL '10 seconds' AS window_end
FROM counts
QUALIFY bids = max(bids) OVER (PARTITION BY window_start)""",
        ),
        Query(
            "q6",
            "the average price of the last ten closed auctions of each seller",
            {"bid": ("auction", "price", "date_time"), "auction": ("id", "seller", "date_time", "expires")},
            average_last_prices,
            f"""WITH closed AS (
    SELECT id, seller, max(price) AS final, max(bid.date_time) + INTERVAL '1 hour' AS closed_at
    {_VALID_SQL}
    GROUP BY id, seller
), last AS (
    SELECT seller, final, time_bucket(INTERVAL '24 hours', closed_at) AS window_start
    FROM closed
    QUALIFY row_number() OVER (PARTITION BY seller, window_start ORDER BY closed_at DESC) <= 10
)
SELECT seller, window_start, avg(final) AS price
FROM last
GROUP BY ALL""",
            f"Auctions are read first, as a table. {_ONE_SESSION} The last ten are those of each day, when it is over; "
            "an auction closes with its last bid.",
        ),
        Query(
            "q7",
            "the highest bids of each ten seconds",
            {"bid": ("auction", "price", "bidder", "date_time")},
            find_highest_bids,
            """SELECT auction, price, bidder, date_time
FROM bid
QUALIFY price = max(price) OVER (PARTITION BY time_bucket(INTERVAL '10 seconds', date_time))""",
        ),
        Query(
            "q8",
            "persons who sold something in the ten seconds in which they registered",
            {"person": ("id", "name", "date_time"), "auction": ("seller", "date_time")},
            find_new_sellers,
            """SELECT DISTINCT person.id, name, time_bucket(INTERVAL '10 seconds', person.date_time) AS window_start
FROM person JOIN auction ON person.id = seller
    AND time_bucket(INTERVAL '10 seconds', person.date_time) = time_bucket(INTERVAL '10 seconds', auction.date_time)""",
        ),
        Query(
            "q9",
            "the winning bid of each auction",
            {"bid": ("auction", "bidder", "price", "date_time"), "auction": ("id", "category", "date_time", "expires")},
            find_winning_bids,
            f"""SELECT auction, category, bidder, price, bid.date_time AS date_time
{_VALID_SQL}
QUALIFY row_number() OVER (PARTITION BY auction ORDER BY price DESC, bid.date_time) = 1""",
            f"Auctions are read first, as a table, and only their category is given. {_ONE_SESSION}",
        ),
        Query(
            "q10",
            "a log of all bids in files",
            {"bid": ("auction", "bidder", "price", "date_time", "extra")},
            log_bids,
            """SELECT auction, bidder, price, date_time, extra,
       strftime(date_time, '%Y-%m-%d') AS day, strftime(date_time, '%H:%M') AS minute
FROM bid""",
            "Parquet files that end by their size; day and minute are columns, not directories.",
            writes_files=True,
        ),
        Query(
            "q11",
            "how many bids each person made in a session, which ends after ten idle seconds",
            {"bid": ("bidder", "date_time")},
            count_in_sessions,
            """WITH gaps AS (
    SELECT bidder, date_time,
           date_time - lag(date_time) OVER (PARTITION BY bidder ORDER BY date_time) <= INTERVAL '10 seconds' AS goes_on
    FROM bid
), numbered AS (
    SELECT bidder, date_time,
           count(*) FILTER (goes_on IS DISTINCT FROM true) OVER (PARTITION BY bidder ORDER BY date_time) AS number
    FROM gaps
)
SELECT bidder, min(date_time) AS window_start, max(date_time) + INTERVAL '10 seconds' AS window_end, count(*) AS bids
FROM numbered
GROUP BY bidder, number""",
        ),
        Query(
            "q12",
            "bids of each person in the ten seconds in which they were seen, by the clock of the machine",
            {"bid": ("bidder", "date_time")},
            count_as_seen,
            """WITH seen AS (
    SELECT bidder, time_bucket(INTERVAL '1 second', date_time + INTERVAL '999999 microseconds') AS seen_at
    FROM bid
)
SELECT bidder, time_bucket(INTERVAL '10 seconds', seen_at) AS window_start,
       window_start + INTERVAL '10 seconds' AS window_end, count(*) AS bids
FROM seen
GROUP BY ALL""",
            "The clock is a virtual one, which goes from second to second of event time when all bids until then were "
            "seen: a bid is seen in the first second that is not before it.",
            goes_by_clock=True,
        ),
        Query(
            "q13",
            "bids with a value out of a bounded table",
            {"bid": ("auction", "bidder", "price", "date_time")},
            look_up_values,
            f"""SELECT auction, bidder, price, date_time, value
FROM bid JOIN (SELECT key, 'value-' || key AS value FROM range({SIDE_ROWS}) side(key))
    ON auction % {SIDE_ROWS} = key""",
        ),
        Query(
            "q14",
            "bids in a range of prices, with the time of day and a count of letters",
            {"bid": ("auction", "bidder", "price", "date_time", "extra")},
            calculate,
            f"""SELECT auction, bidder, price * {EUROS_OF_A_DOLLAR}::DOUBLE AS price,
       CASE WHEN hour(date_time) BETWEEN 8 AND 18 THEN 'dayTime'
            WHEN hour(date_time) <= 6 OR hour(date_time) >= 20 THEN 'nightTime'
            ELSE 'otherTime' END AS time_of_day,
       date_time, extra, length(extra) - length(replace(extra, 'c', '')) AS c_count
FROM bid
WHERE bid.price * {EUROS_OF_A_DOLLAR}::DOUBLE > 1000000 AND bid.price * {EUROS_OF_A_DOLLAR}::DOUBLE < 50000000""",
        ),
        Query(
            "q15",
            "bids, bidders and auctions of each day, by ranks of prices",
            {"bid": ("auction", "bidder", "price", "date_time")},
            report_days,
            f"SELECT {_DAY_SQL},\n       {_RANKS_SQL},\n       {_DISTINCT_SQL}\nFROM bid\nGROUP BY ALL",
            "A day's row comes when the day is over, not again with each change.",
        ),
        Query(
            "q16",
            "bids, bidders and auctions of each channel and day, by ranks of prices",
            {"bid": ("auction", "bidder", "price", "channel", "date_time")},
            report_channels,
            f"SELECT channel, {_DAY_SQL},\n       {_RANKS_SQL},\n       {_DISTINCT_SQL},\n"
            "       max(date_time) AS last_at\nFROM bid\nGROUP BY ALL",
            "As q15; the time of the last bid is given whole, not only its minute.",
        ),
        Query(
            "q17",
            "bids and prices of each auction and day",
            {"bid": ("auction", "price", "date_time")},
            report_auctions,
            f"""SELECT auction, {_DAY_SQL},
       {_RANKS_SQL},
       min(price) AS least, max(price) AS greatest, avg(price) AS mean, sum(price) AS total
FROM bid
GROUP BY ALL""",
            "As q15.",
        ),
        Query(
            "q18",
            "the last bid of each bidder and auction",
            {"bid": ("auction", "bidder", "price", "channel", "url", "date_time", "extra")},
            find_last_bids,
            """SELECT bidder, auction, price, channel, url, date_time, extra
FROM bid
QUALIFY row_number() OVER (
    PARTITION BY bidder, auction, time_bucket(INTERVAL '24 hours', date_time) ORDER BY date_time DESC
) = 1""",
            "That of each day, when the day is over.",
        ),
        Query(
            "q19",
            "the ten highest bids for each auction",
            {"bid": ("auction", "bidder", "price", "date_time")},
            find_top_bids,
            """SELECT auction, bidder, price, date_time
FROM bid
QUALIFY row_number() OVER (
    PARTITION BY auction, time_bucket(INTERVAL '24 hours', date_time) ORDER BY price DESC, date_time
) <= 10""",
            "Those of each day, when the day is over; their rank is left out. Of equal prices the earlier is higher.",
        ),
        Query(
            "q20",
            "bids with their auctions, in category 10",
            {
                "bid": ("auction", "bidder", "price", "channel", "url", "date_time", "extra"),
                "auction": (
                    "id",
                    "item_name",
                    "description",
                    "initial_bid",
                    "reserve",
                    "date_time",
                    "expires",
                    "seller",
                    "category",
                ),
            },
            expand_bids,
            """SELECT bid.*, item_name, description, initial_bid, reserve, expires, seller, category,
       auction.date_time AS opened_at
FROM bid JOIN auction ON bid.auction = auction.id
WHERE category = 10""",
            "Auctions are read first, as a table. Their extra text is left out.",
        ),
        Query(
            "q21",
            "bids with the number of their channel, of the url if it is not a known one",
            {"bid": ("auction", "bidder", "price", "channel", "url")},
            add_channel_ids,
            """SELECT auction, bidder, price, channel,
       CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3'
            ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END AS channel_id
FROM bid
WHERE channel_id IS NOT NULL""",
        ),
        Query(
            "q22",
            "bids with three folders of their url",
            {"bid": ("auction", "bidder", "price", "channel", "url")},
            split_urls,
            """SELECT auction, bidder, price, channel,
       split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, split_part(url, '/', 6) AS dir3
FROM bid""",
        ),
    )
}
