//! The cells in which a search around a place has to look.
//!
//! ```text
//! NW │ N │ NE      cells about as large as the area searched: with the one in the middle, at most
//! W  │ · │ E       nine of them hold all of it; those that it does not reach are left out
//! SW │ S │ SE
//! ```
//!
//! Cells are chosen as Redis chooses them, so that unsorted replies have Redis's order. If they do not hold all of an
//! area, as across a pole, a grid is laid over its bounds instead.

use std::{
    f64::consts::FRAC_PI_2,
    ops::{Range, RangeInclusive},
};

use super::{Coordinates, EARTH_RADIUS_METERS, LATITUDE_MAX, LONGITUDE_MAX, STEPS, border, quantize, spread};

/// The first number behind the geohashes of cells.
const MAP_END: u64 = 1 << (2 * STEPS);
/// Half the circumference of the projection, in meters.
const MERCATOR_MAX_METERS: f64 = 20_037_726.37;

/// The cells of a grid over bounds, at most.
const CELLS_MAX: u64 = 16;

/// The rectangle around the area searched, in degrees. The rectangle may reach beyond the map: to the east and west it
/// goes on at the other side, to the north and south there is nothing.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Southwestern corner.
    pub low: Coordinates,
    /// Northeastern corner.
    pub high: Coordinates,
}

impl Bounds {
    /// The bounds of the places at most `radius_meters` from a place.
    pub fn of_circle(center: Coordinates, radius_meters: f64) -> Self {
        let radius = radius_meters / EARTH_RADIUS_METERS;
        let reaches_a_pole = center.latitude.abs().to_radians() + radius >= FRAC_PI_2;
        // A meridian touches the circle where the angle between it and the radius is a right one.
        let longitude_delta = match (radius.sin() / center.latitude.to_radians().cos()).asin() {
            delta if !reaches_a_pole && delta.is_finite() => delta.to_degrees(),
            _ => LONGITUDE_MAX,
        };
        Self::beside(center, longitude_delta, radius.to_degrees())
    }

    /// The bounds of the places at most half of a height from a place along its meridian, and at most half of a width along
    /// their own parallel.
    pub fn of_box(center: Coordinates, width_meters: f64, height_meters: f64) -> Self {
        let latitude_delta = (height_meters / 2.0 / EARTH_RADIUS_METERS).to_degrees();
        // The nearer to a pole, the more degrees the width takes.
        let nearest = (center.latitude.abs() + latitude_delta).min(LATITUDE_MAX);
        // A parallel is no shortest way: half of the angle between two of its places has this sine.
        let quarter = width_meters / 4.0 / EARTH_RADIUS_METERS;
        let longitude_delta = match (quarter.sin() / nearest.to_radians().cos()).asin() {
            half if quarter < FRAC_PI_2 && half.is_finite() => 2.0 * half.to_degrees(),
            _ => LONGITUDE_MAX,
        };
        Self::beside(center, longitude_delta, latitude_delta)
    }

    /// The bounds of these degrees to either side, and a little more than distances can be off by rounding.
    fn beside(center: Coordinates, longitude_delta: f64, latitude_delta: f64) -> Self {
        let more = |delta: f64| delta + delta * 1e-6 + 1e-9;
        let (longitude_delta, latitude_delta) = (more(longitude_delta), more(latitude_delta));
        let Coordinates { longitude, latitude } = center;
        Self {
            low: Coordinates { longitude: longitude - longitude_delta, latitude: latitude - latitude_delta },
            high: Coordinates { longitude: longitude + longitude_delta, latitude: latitude + latitude_delta },
        }
    }

    /// Whether all longitudes are within.
    fn is_around_the_earth(&self) -> bool {
        self.high.longitude - self.low.longitude >= 2.0 * LONGITUDE_MAX
    }

    /// Roughly the bounds of the area that reaches these meters from a place to either side, as Redis takes them to
    /// choose cells.
    pub fn around(place: Coordinates, east_meters: f64, north_meters: f64) -> Self {
        let latitude_delta = (north_meters / EARTH_RADIUS_METERS).to_degrees();
        // Meridians approach each other towards the poles: the border nearer to one counts.
        let nearer = if place.latitude < 0.0 { -latitude_delta } else { latitude_delta };
        let parallel = (place.latitude + nearer).to_radians().cos();
        let longitude_delta = (east_meters / EARTH_RADIUS_METERS / parallel).to_degrees();
        Self {
            low: Coordinates {
                longitude: place.longitude - longitude_delta,
                latitude: place.latitude - latitude_delta,
            },
            high: Coordinates {
                longitude: place.longitude + longitude_delta,
                latitude: place.latitude + latitude_delta,
            },
        }
    }
}

/// A cell: column and row of a grid of `steps` bits each way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Cell {
    x: u32,
    y: u32,
    steps: u32,
}

impl Cell {
    fn of(place: Coordinates, steps: u32) -> Self {
        let last = (1 << steps) - 1;
        Self {
            x: quantize(place.longitude, LONGITUDE_MAX, steps).min(last),
            y: quantize(place.latitude, LATITUDE_MAX, steps).min(last),
            steps,
        }
    }

    /// The cell `columns` and `rows` away; the grid has no border.
    fn beside(self, columns: i32, rows: i32) -> Self {
        let mask = (1 << self.steps) - 1;
        Self {
            x: self.x.wrapping_add_signed(columns) & mask,
            y: self.y.wrapping_add_signed(rows) & mask,
            ..self
        }
    }

    fn bounds(self) -> Bounds {
        let corner = |x: u32, y: u32| Coordinates {
            longitude: border(x.into(), LONGITUDE_MAX, self.steps),
            latitude: border(y.into(), LATITUDE_MAX, self.steps),
        };
        Bounds { low: corner(self.x, self.y), high: corner(self.x + 1, self.y + 1) }
    }

    /// The geohashes of the places in the cell.
    fn geohashes(self) -> Range<u64> {
        let bits = spread(self.x) << 1 | spread(self.y);
        let shift = 2 * (STEPS - self.steps);
        bits << shift..(bits + 1) << shift
    }
}

/// Steps of the grid whose cells are about as large as a radius.
fn steps_for(radius_meters: f64, latitude: f64) -> u32 {
    if radius_meters == 0.0 {
        return STEPS;
    }
    let (mut radius, mut steps) = (radius_meters, 1_i32);
    while radius < MERCATOR_MAX_METERS {
        radius *= 2.0;
        steps += 1;
    }
    // Two fewer, so that the neighbours hold the places that the cell itself does not; towards the poles the
    // cells are smaller than they seem.
    steps -= 2 + i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    steps.clamp(1, STEPS as i32) as u32
}

/// The ranges of geohashes that hold every place within `reach`: some twenty at most, none twice. The ranges are those
/// around `center` if these are enough, for which `radius_meters` and `bounds` say how large they are to be.
pub fn covering(center: Coordinates, radius_meters: f64, bounds: Bounds, reach: Bounds) -> Vec<Range<u64>> {
    let cells = around(center, radius_meters, bounds, reach).unwrap_or_else(|| grid_over(reach));
    let mut ranges: Vec<_> = cells.into_iter().map(Cell::geohashes).collect();
    // Places on the northern and the eastern border of the map have a row and a column of their own behind the last
    // one.
    if reach.high.latitude >= LATITUDE_MAX {
        ranges.push(MAP_END..2 * MAP_END);
    }
    let touches_the_border = |longitude: f64| longitude.abs() >= LONGITUDE_MAX;
    if touches_the_border(reach.low.longitude) || touches_the_border(reach.high.longitude) {
        ranges.push(2 * MAP_END..4 * MAP_END);
    }
    ranges
}

/// The cells of the finest grid of which not too many hold all places of the map within `reach`.
fn grid_over(reach: Bounds) -> Vec<Cell> {
    let number = |degrees: f64, max: f64, steps: u32| {
        ((degrees + max) / (max + max) * f64::from(1_u32 << steps)).floor() as i64
    };
    let low = reach.low.latitude.clamp(-LATITUDE_MAX, LATITUDE_MAX);
    let high = reach.high.latitude.clamp(-LATITUDE_MAX, LATITUDE_MAX);
    for steps in (1..=STEPS).rev() {
        let last = (1_i64 << steps) - 1;
        let rows = number(low, LATITUDE_MAX, steps).min(last)..=number(high, LATITUDE_MAX, steps).min(last);
        let columns = if reach.is_around_the_earth() {
            0..=last
        } else {
            let west = number(reach.low.longitude, LONGITUDE_MAX, steps);
            west..=number(reach.high.longitude, LONGITUDE_MAX, steps).min(west + last)
        };
        let count = |range: &RangeInclusive<i64>| range.end().abs_diff(*range.start()) + 1;
        // The coarsest grid has four cells.
        if count(&rows).saturating_mul(count(&columns)) <= CELLS_MAX {
            let cell = |x: i64, y: i64| Cell { x: (x & last) as u32, y: y as u32, steps };
            return rows.flat_map(|y| columns.clone().map(move |x| cell(x, y))).collect();
        }
    }
    unreachable!("the coarsest grid has four cells")
}

/// The cell around `center` and those of its neighbours that an area within `bounds` can reach; `None` if they do not
/// hold all of `reach`.
fn around(center: Coordinates, radius_meters: f64, bounds: Bounds, reach: Bounds) -> Option<Vec<Cell>> {
    let mut steps = steps_for(radius_meters, center.latitude);
    let mut middle = Cell::of(center, steps);
    let is_too_small = middle.beside(0, 1).bounds().high.latitude < bounds.high.latitude
        || middle.beside(0, -1).bounds().low.latitude > bounds.low.latitude
        || middle.beside(1, 0).bounds().high.longitude < bounds.high.longitude
        || middle.beside(-1, 0).bounds().low.longitude > bounds.low.longitude;
    if steps > 1 && is_too_small {
        steps -= 1;
        middle = Cell::of(center, steps);
    }
    let own = middle.bounds();
    // In the coarsest grid a neighbour is one on both sides.
    let is_fine = steps >= 2;
    let stays_south = is_fine && own.high.latitude > bounds.high.latitude;
    let stays_north = is_fine && own.low.latitude < bounds.low.latitude;
    let stays_west = is_fine && own.high.longitude > bounds.high.longitude;
    let stays_east = is_fine && own.low.longitude < bounds.low.longitude;
    let mut cells = Vec::with_capacity(9);
    for (columns, rows) in [(0, 0), (0, 1), (0, -1), (1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1)] {
        let is_needless = rows > 0 && stays_south
            || rows < 0 && stays_north
            || columns > 0 && stays_west
            || columns < 0 && stays_east;
        let cell = middle.beside(columns, rows);
        if !is_needless && !cells.contains(&cell) {
            cells.push(cell);
        }
    }
    // Borders of all of them together, which may lie beyond those of the map.
    let edge = |number: u32, beyond: i8, max: f64| {
        -max + (f64::from(number) + f64::from(beyond)) / f64::from(1_u32 << steps) * (max + max)
    };
    let (x, y) = (middle.x, middle.y);
    let (west, east) =
        (edge(x, -i8::from(!stays_east), LONGITUDE_MAX), edge(x, 1 + i8::from(!stays_west), LONGITUDE_MAX));
    let (south, north) =
        (edge(y, -i8::from(!stays_north), LATITUDE_MAX), edge(y, 1 + i8::from(!stays_south), LATITUDE_MAX));
    let columns = 1 + u32::from(!stays_east) + u32::from(!stays_west);
    let holds_longitudes = columns >> steps > 0
        || !reach.is_around_the_earth() && west <= reach.low.longitude && reach.high.longitude < east;
    let holds_latitudes = (south <= reach.low.latitude || south <= -LATITUDE_MAX)
        && (reach.high.latitude < north || north >= LATITUDE_MAX);
    (holds_longitudes && holds_latitudes).then_some(cells)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Degrees, those at the borders of the map among them.
    fn degrees(max: f64) -> impl Strategy<Value = f64> {
        prop_oneof![
            6 => -max..=max,
            2 => (0.0..2.0).prop_map(move |off| max - off),
            2 => (0.0..2.0).prop_map(move |off| off - max),
            1 => prop::sample::select(vec![-max, 0.0, max]),
        ]
    }

    fn place() -> impl Strategy<Value = Coordinates> {
        (degrees(LONGITUDE_MAX), degrees(LATITUDE_MAX))
            .prop_map(|(longitude, latitude)| Coordinates { longitude, latitude })
    }

    /// A place at this distance at most, as seen from the center in a direction.
    fn away(center: Coordinates, meters: f64, direction: f64) -> Coordinates {
        let angle = meters / EARTH_RADIUS_METERS;
        let latitude = center.latitude.to_radians();
        let sine = latitude.sin() * angle.cos() + latitude.cos() * angle.sin() * direction.cos();
        let east =
            (direction.sin() * angle.sin() * latitude.cos()).atan2(angle.cos() - latitude.sin() * sine);
        let longitude = (center.longitude + east.to_degrees() + 540.0).rem_euclid(360.0) - LONGITUDE_MAX;
        let latitude = sine.clamp(-1.0, 1.0).asin().to_degrees();
        Coordinates { longitude, latitude: latitude.clamp(-LATITUDE_MAX, LATITUDE_MAX) }
    }

    /// How many of the ranges hold a place.
    fn holding(ranges: &[Range<u64>], place: Coordinates) -> usize {
        ranges.iter().filter(|range| range.contains(&place.encode())).count()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(4096))]
        #[test]
        fn covering_has_every_place_in_a_circle(
            center in place(),
            exponent in 0.0..7.4,
            shares in prop::collection::vec((0.0..=1.0, 0.0..std::f64::consts::TAU), 1..20),
            others in prop::collection::vec(place(), 0..20),
        ) {
            let radius: f64 = f64::powf(10.0, exponent);
            let bounds = Bounds::around(center, radius, radius);
            let ranges = covering(center, radius, bounds, Bounds::of_circle(center, radius));
            prop_assert!((1..=CELLS_MAX as usize + 2).contains(&ranges.len()));
            let near = shares.iter().map(|(share, direction)| away(center, share * radius, *direction));
            for place in near.chain(others) {
                // As a search sees it, which knows geohashes only.
                let place = Coordinates::decode(place.encode());
                let wanted = usize::from(place.distance_meters(center) <= radius);
                prop_assert!((wanted..=1).contains(&holding(&ranges, place)), "{:?}", place);
            }
        }

        #[test]
        fn covering_has_every_place_in_a_box(
            center in place(),
            exponents in (0.0..7.6, 0.0..7.6),
            shares in prop::collection::vec((-1.0..=1.0, -1.0..=1.0), 1..20),
            others in prop::collection::vec(place(), 0..20),
        ) {
            let [width, height] = [exponents.0, exponents.1].map(|exponent| f64::powf(10.0, exponent));
            let bounds = Bounds::around(center, width / 2.0, height / 2.0);
            let reach = Bounds::of_box(center, width, height);
            let ranges = covering(center, (width / 2.0).hypot(height / 2.0), bounds, reach);
            let near = shares.iter().map(|(east, north)| {
                let longitude = center.longitude + east * (reach.high.longitude - center.longitude);
                let latitude = center.latitude + north * (reach.high.latitude - center.latitude);
                Coordinates {
                    longitude: (longitude + 540.0).rem_euclid(360.0) - LONGITUDE_MAX,
                    latitude: latitude.clamp(-LATITUDE_MAX, LATITUDE_MAX),
                }
            });
            for place in near.chain(others) {
                let place = Coordinates::decode(place.encode());
                let beside = Coordinates { longitude: center.longitude, ..place };
                let is_inside = center.northing_meters(place) <= height / 2.0
                    && place.distance_meters(beside) <= width / 2.0;
                prop_assert!((usize::from(is_inside)..=1).contains(&holding(&ranges, place)), "{:?}", place);
            }
        }
    }

    #[test]
    fn covering_of_the_whole_earth_is_four_cells_with_borders() {
        let center = Coordinates { longitude: 10.0, latitude: 10.0 };
        let bounds = Bounds::around(center, 3e7, 3e7);
        let mut ranges = covering(center, 3e7, bounds, Bounds::of_circle(center, 3e7));
        ranges.sort_by_key(|range| range.start);
        assert_eq!(ranges.len(), 6);
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!((ranges[0].start, ranges[5].end), (0, 4 * MAP_END));
    }
}
