"""Baskets of a shop, each a JSON document: lines are added, counted and priced where they stand.

    python basket.py CUSTOMER

    basket:<customer>   {"lines": [{"article", "price", "count"}, ...], "coupons": [...]}

A basket is read by its parts: the page's head needs the count, the checkout the sum. No part is sent that is not needed, and
two tabs that change one basket at once lose nothing, since each sends its change and not the basket.
"""

import os
import sys

import redis


class Baskets:
    def __init__(self, store):
        self.store, self.json = store, store.json()

    def add(self, customer, article, price, count=1):
        """Adds some of an article; the line is there once."""
        key = f"basket:{customer}"
        self.json.set(key, "$", {"lines": [], "coupons": []}, nx=True)
        line = f'$.lines[?(@.article=="{article}")]'
        # An empty array: there is no such line yet.
        if not self.json.numincrby(key, line + ".count", count):
            self.json.arrappend(key, "$.lines", {"article": article, "price": price, "count": count})

    def count(self, customer):
        return sum(self.json.get(f"basket:{customer}", "$.lines[*].count") or [])

    def total(self, customer):
        lines = self.json.get(f"basket:{customer}", "$.lines[*]") or []
        return sum(line["price"] * line["count"] for line in lines)

    def expensive(self, customer, price):
        """Articles that cost more."""
        return self.json.get(f"basket:{customer}", f"$.lines[?(@.price>{price})].article")

    def remove(self, customer, article):
        return self.json.delete(f"basket:{customer}", f'$.lines[?(@.article=="{article}")]')


def main(customer):
    baskets = Baskets(redis.Redis.from_url(os.environ.get("DUNLIN_URL", "redis://127.0.0.1:6379")))
    baskets.store.delete(f"basket:{customer}")
    baskets.add(customer, "lamp", 40, 1)
    baskets.add(customer, "cable", 7.5, 2)
    baskets.add(customer, "cable", 7.5, 1)
    print(f"{baskets.count(customer)} things for {baskets.total(customer)}, of which dear: {baskets.expensive(customer, 20)}")
    baskets.remove(customer, "lamp")
    print(f"{baskets.count(customer)} things for {baskets.total(customer)}")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    try:
        main(sys.argv[1])
    except redis.ConnectionError as error:
        sys.exit(f"{error} Start a server (make run), or name one in DUNLIN_URL.")
