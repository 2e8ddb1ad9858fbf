//! The area of a search: the places in a circle, a box or a polygon.

use std::ops::Range;

use dunlin_structures::geohash::{Bounds, Coordinates, covering};

/// An area. Lengths are in meters.
#[derive(Debug, Clone)]
pub(super) enum Shape {
    /// All places within this distance from the center.
    Circle { radius: f64 },
    /// All places at most half of these lengths from the center, along its meridian and along their own
    /// parallel.
    Box { width: f64, height: f64 },
    /// All places inside, the sides being straight on the map of degrees.
    Polygon(Vec<Coordinates>),
}

impl Shape {
    /// The middle of a polygon's corners, from which its distances are measured: the place at which
    /// the mean of their directions from the middle of the earth leaves it.
    pub(super) fn middle(corners: &[Coordinates]) -> Coordinates {
        let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
        for corner in corners {
            let (longitude, latitude) = (corner.longitude.to_radians(), corner.latitude.to_radians());
            x += latitude.cos() * longitude.cos();
            y += latitude.cos() * longitude.sin();
            z += latitude.sin();
        }
        // By a division, which rounds as Valkey does.
        let degrees = |angle: f64| angle / 1.0_f64.to_radians();
        Coordinates { longitude: degrees(y.atan2(x)), latitude: degrees(z.atan2((x * x + y * y).sqrt())) }
    }

    /// The meters from the center to a place, if that is in the area.
    pub(super) fn distance_to(&self, center: Coordinates, place: Coordinates) -> Option<f64> {
        let is_inside = match self {
            Self::Circle { radius } => {
                let distance = center.distance_meters(place);
                return (distance <= *radius).then_some(distance);
            }
            Self::Box { width, height } => {
                let beside = Coordinates { longitude: center.longitude, ..place };
                center.northing_meters(place) <= height / 2.0 && place.distance_meters(beside) <= width / 2.0
            }
            Self::Polygon(corners) => is_within(place, corners),
        };
        is_inside.then(|| center.distance_meters(place))
    }

    /// The ranges of geohashes in which all places of the area are.
    pub(super) fn ranges(&self, center: Coordinates) -> Vec<Range<u64>> {
        match self {
            Self::Circle { radius } => {
                let bounds = Bounds::around(center, *radius, *radius);
                covering(center, *radius, bounds, Bounds::of_circle(center, *radius))
            }
            Self::Box { width, height } => {
                let (east, north) = (width / 2.0, height / 2.0);
                let bounds = Bounds::around(center, east, north);
                covering(center, east.hypot(north), bounds, Bounds::of_box(center, *width, *height))
            }
            Self::Polygon(corners) => {
                let bounds = bounds_of(corners);
                let Bounds { low, high } = bounds;
                let northwest = Coordinates { latitude: high.latitude, ..low };
                let southeast = Coordinates { latitude: low.latitude, ..high };
                let distances =
                    [low, high, northwest, southeast].map(|corner| center.distance_meters(corner));
                let farthest = distances.into_iter().fold(0.0, f64::max);
                covering(center, farthest, bounds, bounds)
            }
        }
    }
}

fn bounds_of(corners: &[Coordinates]) -> Bounds {
    let mut bounds = Bounds { low: corners[0], high: corners[0] };
    for corner in corners {
        bounds.low.longitude = bounds.low.longitude.min(corner.longitude);
        bounds.low.latitude = bounds.low.latitude.min(corner.latitude);
        bounds.high.longitude = bounds.high.longitude.max(corner.longitude);
        bounds.high.latitude = bounds.high.latitude.max(corner.latitude);
    }
    bounds
}

/// Whether a ray from the place eastwards crosses the sides an odd number of times (M. Shimrat,
/// Algorithm 112, CACM 5, 1962).
fn is_within(place: Coordinates, corners: &[Coordinates]) -> bool {
    let mut previous = corners[corners.len() - 1];
    let mut is_inside = false;
    for &corner in corners {
        if (corner.latitude > place.latitude) != (previous.latitude > place.latitude) {
            let share = (place.latitude - corner.latitude) / (previous.latitude - corner.latitude);
            let crossing = corner.longitude + share * (previous.longitude - corner.longitude);
            is_inside ^= place.longitude < crossing;
        }
        previous = corner;
    }
    is_inside
}

#[cfg(test)]
mod tests {
    use dunlin_structures::geohash::{LATITUDE_MAX, LONGITUDE_MAX};
    use proptest::prelude::*;

    use super::*;

    fn place() -> impl Strategy<Value = Coordinates> {
        let degrees = |max: f64| prop_oneof![4 => -max..=max, 1 => max - 2.0..=max, 1 => -max..=2.0 - max, 1 => Just(-max), 1 => Just(max)];
        (degrees(LONGITUDE_MAX), degrees(LATITUDE_MAX))
            .prop_map(|(longitude, latitude)| Coordinates { longitude, latitude })
    }

    fn length() -> impl Strategy<Value = f64> {
        prop_oneof![Just(0.0), (0.0..7.7).prop_map(|exponent| f64::powf(10.0, exponent))]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2048))]
        /// A search finds the same places as a look at every place.
        #[test]
        fn search_covers_every_place_of_its_area(
            center in place(),
            sizes in (length(), length()),
            corners in prop::collection::vec(place(), 3..7),
            places in prop::collection::vec(place(), 1..40),
        ) {
            let middle = Shape::middle(&corners);
            let (width, height) = sizes;
            for (center, shape) in [
                (center, Shape::Circle { radius: width }),
                (center, Shape::Box { width, height }),
                (middle, Shape::Polygon(corners)),
            ] {
                let ranges = shape.ranges(center);
                for place in &places {
                    let geohash = place.encode();
                    let looks = ranges.iter().filter(|range| range.contains(&geohash)).count();
                    let is_inside = shape.distance_to(center, Coordinates::decode(geohash)).is_some();
                    prop_assert!((usize::from(is_inside)..=1).contains(&looks), "{:?} in {:?}", place, shape);
                }
            }
        }
    }
}
