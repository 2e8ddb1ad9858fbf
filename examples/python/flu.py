"""When to be careful: which months of a monthly series peak, and in which years they did.

The series is deaths from bronchitis, emphysema and asthma in the United Kingdom, 1974 to 1979 (P. Diggle:
"Time Series: A Biostatistical Introduction", 1990; in R it is `ldeaths`), which follow the flu.

    flu:series   sorted set: month `1976-02`, scored with its deaths
    flu:months   sorted set: month of the year, scored with its deaths in all years
    flu:peaks    sorted set: month of the year, scored with how often it was the worst of its winter
"""

import csv
import os
import pathlib
import sys

import redis

SERIES = pathlib.Path(__file__).with_name("lung_deaths.csv")
MONTHS = ["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"]


def load(store):
    """Loads the series; the sums are made by the store."""
    store.delete("flu:series", "flu:months", "flu:peaks")
    winters = {}
    with store.pipeline(transaction=True) as pipeline:
        for row in csv.DictReader(SERIES.read_text().splitlines()):
            for number, month in enumerate(MONTHS, 1):
                deaths = int(row[month])
                pipeline.zadd("flu:series", {f"{row['year']}-{number:02}": deaths})
                pipeline.zincrby("flu:months", deaths, month)
                # A winter begins in July and is named after its January.
                winter = int(row["year"]) + (number > 6)
                winters.setdefault(winter, {})[month] = deaths
        for months in winters.values():
            pipeline.zincrby("flu:peaks", 1, max(months, key=months.get))
        pipeline.execute()


def main():
    store = redis.Redis.from_url(os.environ.get("DUNLIN_URL", "redis://127.0.0.1:6379"), decode_responses=True)
    load(store)
    total = sum(deaths for _, deaths in store.zrange("flu:months", 0, -1, withscores=True))
    print("be careful in:")
    for month, deaths in store.zrange("flu:months", 0, 3, desc=True, withscores=True):
        share = deaths / total * 100
        print(f"    {month}  {share:4.1f}% of a year, worst month of {int(store.zscore('flu:peaks', month) or 0)} winters")
    print("worst months of all:")
    for month, deaths in store.zrange("flu:series", 0, 2, desc=True, withscores=True):
        print(f"    {month}  {int(deaths)}")


if __name__ == "__main__":
    try:
        main()
    except redis.ConnectionError as error:
        sys.exit(f"{error} Start a server (make run), or name one in DUNLIN_URL.")
