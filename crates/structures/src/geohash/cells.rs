//! The cells in which a search around a place has to look.
//!
//! ```text
//! NW │ N │ NE      cells about as large as the area searched: with the one in the middle, at most
//! W  │ · │ E       nine of them hold all of it; those that it does not reach are left out
//! SW │ S │ SE
//! ```

use std::ops::Range;

use super::{EARTH_RADIUS_METERS, LATITUDE_MAX, LONGITUDE_MAX, Place, STEPS, border, quantize, spread};

/// Half the circumference of the projection, in meters.
const MERCATOR_MAX_METERS: f64 = 20_037_726.37;

/// What surrounds the area searched, in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Bounds {
    /// Southwestern corner.
    pub low: Place,
    /// Northeastern corner.
    pub high: Place,
}

impl Bounds {
    /// The bounds of what reaches so many meters from a place to either side.
    pub fn around(place: Place, east_meters: f64, north_meters: f64) -> Self {
        let latitude_delta = (north_meters / EARTH_RADIUS_METERS).to_degrees();
        // Meridians approach each other towards the poles: the border nearer to one counts.
        let nearer = if place.latitude < 0.0 { -latitude_delta } else { latitude_delta };
        let parallel = (place.latitude + nearer).to_radians().cos();
        let longitude_delta = (east_meters / EARTH_RADIUS_METERS / parallel).to_degrees();
        Self {
            low: Place {
                longitude: place.longitude - longitude_delta,
                latitude: place.latitude - latitude_delta,
            },
            high: Place {
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
    fn of(place: Place, steps: u32) -> Self {
        let last = (1 << steps) - 1;
        Self {
            x: quantize(place.longitude, LONGITUDE_MAX, steps).min(last),
            y: quantize(place.latitude, LATITUDE_MAX, steps).min(last),
            steps,
        }
    }

    /// The cell so many columns and rows away; the grid has no border.
    fn beside(self, columns: i32, rows: i32) -> Self {
        let mask = (1 << self.steps) - 1;
        Self {
            x: self.x.wrapping_add_signed(columns) & mask,
            y: self.y.wrapping_add_signed(rows) & mask,
            ..self
        }
    }

    fn bounds(self) -> Bounds {
        let corner = |x: u32, y: u32| Place {
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
    // Two fewer, so that the neighbours hold what the cell itself does not; towards the poles the
    // cells are smaller than they seem.
    steps -= 2 + i32::from(latitude.abs() > 66.0) + i32::from(latitude.abs() > 80.0);
    steps.clamp(1, STEPS as i32) as u32
}

/// The ranges of geohashes that hold every place within `bounds` which is at most `radius_meters`
/// from `center`: nine at most, none twice, the one around the center first.
pub fn covering(center: Place, radius_meters: f64, bounds: Bounds) -> Vec<Range<u64>> {
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
    cells.into_iter().map(Cell::geohashes).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_near_is_covered(
            longitude in -LONGITUDE_MAX..LONGITUDE_MAX,
            latitude in -80.0..80.0,
            exponent in 0.0..6.0,
            east in -1.0..1.0,
            north in -1.0..1.0,
        ) {
            let center = Place { longitude, latitude };
            let radius: f64 = f64::powf(10.0, exponent);
            let bounds = Bounds::around(center, radius, radius);
            let ranges = covering(center, radius, bounds);
            prop_assert!((1..=9).contains(&ranges.len()));
            let near = Place {
                longitude: longitude + east * (bounds.high.longitude - longitude),
                latitude: latitude + north * (bounds.high.latitude - latitude),
            };
            if near.is_valid() && near.distance_meters(center) <= radius {
                let geohash = near.encode();
                let holding = ranges.iter().filter(|range| range.contains(&geohash)).count();
                prop_assert_eq!(holding, 1);
            }
        }
    }

    #[test]
    fn the_whole_earth_is_four_cells() {
        let center = Place { longitude: 10.0, latitude: 10.0 };
        let mut ranges = covering(center, 3e7, Bounds::around(center, 3e7, 3e7));
        ranges.sort_by_key(|range| range.start);
        assert_eq!(ranges.len(), 4);
        assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
        assert_eq!((ranges[0].start, ranges[3].end), (0, 1 << 52));
    }
}
