//! Geohashes of 52 bits: places on earth as numbers, near ones mostly near each other.
//!
//! ```text
//! longitude  −180 … 180           26 bits ─┐ interleaved, the longitude's bit first:
//! latitude   −85.05… … 85.05…     26 bits ─┴ x25 y25 x24 y24 … x0 y0
//! ```
//!
//! The range of latitudes is that of the Web Mercator projection, so that cells are about square. A
//! cell of fewer bits is a prefix, and a prefix a range of numbers: [`covering`] finds the ranges in
//! which a search has to look. The numbers, texts and distances are those of Redis, bit for bit.
//!
//! Sources: G. Niemeyer, geohash.org; the haversine formula: R. W. Sinnott, Sky and Telescope 68, 1984.

mod cells;

pub use cells::{Bounds, covering};

/// Bits of each coordinate.
const STEPS: u32 = 26;
/// Largest longitude, and less its sign the smallest, in degrees.
pub const LONGITUDE_MAX: f64 = 180.0;
/// Largest latitude, and less its sign the smallest, in degrees.
pub const LATITUDE_MAX: f64 = 85.051_128_78;
/// The earth's radius in these formulas.
const EARTH_RADIUS_METERS: f64 = 6_372_797.560_856;
/// Characters of a geohash as text.
pub const TEXT_BYTES: usize = 11;

/// A place, in degrees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Coordinates {
    /// East of Greenwich.
    pub longitude: f64,
    /// North of the equator.
    pub latitude: f64,
}

/// The bits of `x` on the even places of the result.
#[inline]
fn spread(x: u32) -> u64 {
    let mut bits = u64::from(x);
    for (shift, mask) in [
        (16, 0x0000_ffff_0000_ffff),
        (8, 0x00ff_00ff_00ff_00ff),
        (4, 0x0f0f_0f0f_0f0f_0f0f),
        (2, 0x3333_3333_3333_3333),
        (1, 0x5555_5555_5555_5555),
    ] {
        bits = (bits | bits << shift) & mask;
    }
    bits
}

/// The even places of `bits`, put together.
#[inline]
fn gather(bits: u64) -> u32 {
    let mut bits = bits & 0x5555_5555_5555_5555;
    for (shift, mask) in [
        (1, 0x3333_3333_3333_3333),
        (2, 0x0f0f_0f0f_0f0f_0f0f),
        (4, 0x00ff_00ff_00ff_00ff),
        (8, 0x0000_ffff_0000_ffff),
        (16, 0x0000_0000_ffff_ffff),
    ] {
        bits = (bits | bits >> shift) & mask;
    }
    bits as u32
}

/// The number of the column or row of `steps` bits in which a coordinate of `-max ..= max` lies.
#[inline]
fn quantize(degrees: f64, max: f64, steps: u32) -> u32 {
    let share = (degrees + max) / (max + max);
    // The largest coordinate lies on the border behind the last cell.
    (share * f64::from(1_u32 << steps)) as u32
}

/// The lower border of a column or row.
#[inline]
fn border(number: u64, max: f64, steps: u32) -> f64 {
    -max + number as f64 / f64::from(1_u32 << steps) * (max + max)
}

#[inline]
fn interleave(place: Coordinates, latitude_max: f64, steps: u32) -> u64 {
    let x = quantize(place.longitude, LONGITUDE_MAX, steps);
    let y = quantize(place.latitude, latitude_max, steps);
    spread(x) << 1 | spread(y)
}

impl Coordinates {
    /// Whether the coordinates are such that a geohash has them.
    pub fn is_valid(self) -> bool {
        self.longitude.abs() <= LONGITUDE_MAX && self.latitude.abs() <= LATITUDE_MAX
    }

    /// The geohash of a valid place.
    pub fn encode(self) -> u64 {
        debug_assert!(self.is_valid());
        interleave(self, LATITUDE_MAX, STEPS)
    }

    /// The middle of the cell of a geohash. Numbers that are none are at the border of the map.
    pub fn decode(geohash: u64) -> Self {
        let middle = |number: u32, max: f64| {
            let number = u64::from(number);
            let middle = (border(number, max, STEPS) + border(number + 1, max, STEPS)) / 2.0;
            middle.clamp(-max, max)
        };
        Self {
            longitude: middle(gather(geohash >> 1), LONGITUDE_MAX),
            latitude: middle(gather(geohash), LATITUDE_MAX),
        }
    }

    /// The text of geohash.org: eleven characters, of which the last stands for no bits.
    pub fn text(self) -> [u8; TEXT_BYTES] {
        const ALPHABET: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        // There, latitudes reach to the poles.
        let bits = interleave(self, 90.0, STEPS);
        std::array::from_fn(|at| {
            let shift = (2 * STEPS as usize).checked_sub(5 * (at + 1));
            ALPHABET[shift.map_or(0, |shift| bits >> shift & 31) as usize]
        })
    }

    /// Meters to another place on the surface of a sphere.
    pub fn distance_meters(self, other: Self) -> f64 {
        let v = ((other.longitude.to_radians() - self.longitude.to_radians()) / 2.0).sin();
        if v == 0.0 {
            return self.northing_meters(other);
        }
        let (one, two) = (self.latitude.to_radians(), other.latitude.to_radians());
        let u = ((two - one) / 2.0).sin();
        let a = u * u + one.cos() * two.cos() * v * v;
        2.0 * EARTH_RADIUS_METERS * a.sqrt().asin()
    }

    /// Meters between the parallels of two places.
    pub fn northing_meters(self, other: Self) -> f64 {
        EARTH_RADIUS_METERS * (other.latitude.to_radians() - self.latitude.to_radians()).abs()
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const PALERMO: Coordinates = Coordinates { longitude: 13.361389, latitude: 38.115556 };
    const CATANIA: Coordinates = Coordinates { longitude: 15.087269, latitude: 37.502669 };

    #[test]
    fn numbers_texts_and_distances_are_those_of_redis() {
        assert_eq!(PALERMO.encode(), 3_479_099_956_230_698);
        assert_eq!(CATANIA.encode(), 3_479_447_370_796_909);
        let palermo = Coordinates::decode(3_479_099_956_230_698);
        let expected = Coordinates { longitude: 13.361_389_338_970_184, latitude: 38.115_556_395_496_3 };
        assert_eq!(palermo, expected);
        assert_eq!(&palermo.text(), b"sqc8b49rny0");
        let catania = Coordinates::decode(CATANIA.encode());
        assert_eq!(format!("{:.4}", palermo.distance_meters(catania)), "166274.1516");
    }

    #[test]
    fn geohash_of_the_border_stays_there() {
        let corner = Coordinates { longitude: LONGITUDE_MAX, latitude: LATITUDE_MAX };
        assert_eq!(Coordinates::decode(corner.encode()), corner);
        assert_eq!(Coordinates::decode(u64::MAX), corner);
    }

    proptest! {
        #[test]
        fn geohash_cell_contains_its_place(
            longitude in -LONGITUDE_MAX..LONGITUDE_MAX,
            latitude in -LATITUDE_MAX..LATITUDE_MAX,
        ) {
            let place = Coordinates { longitude, latitude };
            let geohash = place.encode();
            prop_assert!(geohash < 1 << 52);
            let middle = Coordinates::decode(geohash);
            prop_assert!((middle.longitude - longitude).abs() <= 360.0 / f64::from(1 << STEPS));
            prop_assert!((middle.latitude - latitude).abs() <= 180.0 / f64::from(1 << STEPS));
            prop_assert_eq!(middle.encode(), geohash);
        }

        #[test]
        fn spreading_and_gathering_are_inverse(x: u32, y: u32) {
            prop_assert_eq!(gather(spread(x)), x);
            prop_assert_eq!(gather((spread(x) << 1 | spread(y)) >> 1), x);
        }
    }
}
