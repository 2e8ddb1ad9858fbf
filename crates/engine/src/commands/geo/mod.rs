//! Commands on places: sorted sets whose scores are geohashes.

mod members;
mod query;
mod rows;
mod search;
mod shape;

use dunlin_resp::ReplyBuffer;
use dunlin_structures::geohash::Coordinates;

use crate::command::{Args, Command, CommandError};

/// The rows of the family.
pub(super) const COMMANDS: &[Command] = &[
    members::GEOADD,
    members::GEODIST,
    members::GEOHASH,
    members::GEOPOS,
    rows::GEORADIUS,
    rows::GEORADIUS_RO,
    rows::GEORADIUSBYMEMBER,
    rows::GEORADIUSBYMEMBER_RO,
    rows::GEOSEARCH,
    rows::GEOSEARCHSTORE,
];

/// The place that a score stands for. A score that is not a geohash is converted as x86-64 does it,
/// so that its place is that of Redis.
fn place_of(score: f64) -> Coordinates {
    const HALF: f64 = (1_u64 << 63) as f64;
    Coordinates::decode(if score < HALF {
        score as i64 as u64
    } else if score < 2.0 * HALF {
        score as u64
    } else {
        0
    })
}

/// Reads a longitude and a latitude.
fn parse_place(args: &mut Args<'_>) -> Result<Coordinates, CommandError> {
    let place = Coordinates { longitude: args.float(), latitude: args.float() };
    args.check()?;
    if !place.is_valid() {
        return Err(CommandError::owned(format!(
            "ERR invalid longitude,latitude pair {:.6},{:.6}",
            place.longitude, place.latitude
        )));
    }
    Ok(place)
}

/// Reads a unit of length: its meters.
fn parse_unit(args: &mut Args<'_>) -> Result<f64, CommandError> {
    match args.word().to_ascii_lowercase().as_slice() {
        b"m" => Ok(1.0),
        b"km" => Ok(1000.0),
        b"ft" => Ok(0.3048),
        b"mi" => Ok(1609.34),
        _ => Err(CommandError::text("ERR unsupported unit provided. please use M, KM, FT, MI")),
    }
}

/// A length with four digits behind the point.
fn reply_length(reply: &mut ReplyBuffer, length: f64) {
    reply.bulk(format!("{length:.4}").as_bytes());
}

/// Longitude and latitude.
fn reply_place(reply: &mut ReplyBuffer, place: Coordinates) {
    reply.array(2);
    for degrees in [place.longitude, place.latitude] {
        let text = format!("{degrees:.17}");
        reply.double_text(text.trim_end_matches('0').trim_end_matches('.'));
    }
}
