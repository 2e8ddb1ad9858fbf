//! Places one by one.

use dunlin_resp::ReplyBuffer;
use dunlin_structures::geohash::Coordinates;

use super::{parse_place, parse_unit, place_of, reply_length, reply_place};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    commands::sorted_set::{Conditions, put},
    context::{ReadContext, WriteContext},
    value::SortedSet,
};

/// Units of length.
pub(super) const UNITS: &[Argument] = &[
    Argument::word("m", "m"),
    Argument::word("km", "km"),
    Argument::word("ft", "ft"),
    Argument::word("mi", "mi"),
];

pub(super) const GEOADD: Command = Command {
    name: "geoadd",
    summary: "Adds places to a sorted set, or moves them; it is created where it is missing.",
    since: "3.2.0",
    group: Group::Geo,
    complexity: "O(log n) for each place given, with n members in the sorted set",
    arity: Arity::AtLeast(5),
    run: Run::Write(geoadd),
    flags: Flags::DENY_OOM,
    keys: &[KeySpec::at(1).read_write().updates()],
    args: &[
        Argument::key("key"),
        Argument::one_of("condition", &[Argument::word("nx", "NX"), Argument::word("xx", "XX")])
            .optional()
            .since("6.2.0"),
        Argument::word("change", "CH").optional().since("6.2.0"),
        Argument::block(
            "data",
            &[Argument::double("longitude"), Argument::double("latitude"), Argument::string("member")],
        )
        .multiple(),
    ],
    ..Command::DEFAULT
};

pub(super) const GEODIST: Command = Command {
    name: "geodist",
    summary: "Returns the distance between two places.",
    complexity: "O(1)",
    arity: Arity::AtLeast(4),
    run: Run::Read(geodist),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        Argument::string("member1"),
        Argument::string("member2"),
        Argument::one_of("unit", UNITS).optional(),
    ],
    ..GEOADD
};

pub(super) const GEOHASH: Command = Command {
    name: "geohash",
    summary: "Returns places as the text of geohash.org.",
    complexity: "O(n) for n members given",
    arity: Arity::AtLeast(2),
    run: Run::Read(geohash),
    args: &[Argument::key("key"), Argument::string("member").optional().multiple()],
    ..GEODIST
};

pub(super) const GEOPOS: Command = Command {
    name: "geopos",
    summary: "Returns the longitudes and latitudes of places.",
    run: Run::Read(geopos),
    ..GEOHASH
};

fn geoadd(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let key = args.word();
    let mut conditions = Conditions::default();
    let mut count_changes = false;
    loop {
        if args.token("NX") {
            conditions.new_only = true;
        } else if args.token("XX") {
            conditions.existing_only = true;
        } else if args.token("CH") {
            count_changes = true;
        } else {
            break;
        }
    }
    let excluded = conditions.new_only && conditions.existing_only;
    if excluded || args.is_empty() || !args.remaining().is_multiple_of(3) {
        return Err(CommandError::Syntax);
    }
    let options = args.words()[1..args.words().len() - args.remaining()].to_vec();
    let mut places = Vec::with_capacity(args.remaining() / 3);
    while !args.is_empty() {
        let place = parse_place(args)?;
        places.push((place.encode() as f64, args.word()));
    }
    let outcome = put(context, key, conditions, places.iter().copied())?;
    if context.is_recorded() && outcome.added + outcome.updated > 0 {
        record_places(context, &options, &places);
    }
    reply.count(outcome.added + if count_changes { outcome.updated } else { 0 });
    Ok(())
}

/// Records places as the scores that they are. `options` are the words between the command and the first
/// place.
fn record_places(context: &mut WriteContext<'_>, options: &[&[u8]], places: &[(f64, &[u8])]) {
    let scores: Vec<String> = places.iter().map(|(score, _)| (*score as u64).to_string()).collect();
    let mut words: Vec<&[u8]> = vec![b"zadd"];
    words.extend_from_slice(options);
    for (score, (_, member)) in scores.iter().zip(places) {
        words.extend([score.as_bytes(), member]);
    }
    context.propagate(&words);
}

fn geodist(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    let (key, one, other) = (args.word(), args.word(), args.word());
    let unit_meters = if args.is_empty() { 1.0 } else { parse_unit_alone(args)? };
    let set = context.collection::<SortedSet>(key)?;
    match set.and_then(|set| set.score(one).zip(set.score(other))) {
        Some((one, other)) => {
            reply_length(reply, place_of(one).distance_meters(place_of(other)) / unit_meters);
        }
        None => reply.null(),
    }
    Ok(())
}

/// Reads a unit that has to be the last word.
fn parse_unit_alone(args: &mut Args<'_>) -> Result<f64, CommandError> {
    if args.remaining() > 1 {
        return Err(CommandError::Syntax);
    }
    parse_unit(args)
}

fn geohash(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    tell(context, args, reply, |reply, place| match place {
        Some(place) => reply.bulk(&place.text()),
        None => reply.null(),
    })
}

fn geopos(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    tell(context, args, reply, |reply, place| match place {
        Some(place) => reply_place(reply, place),
        None => reply.null_array(),
    })
}

fn tell(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    tell: impl Fn(&mut ReplyBuffer, Option<Coordinates>),
) -> CommandResult {
    let set = context.collection::<SortedSet>(args.word())?;
    let set = set.as_deref();
    let members = args.take_rest();
    reply.array(members.len());
    for member in members {
        tell(reply, set.and_then(|set| set.score(member)).map(place_of));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    #[test]
    fn places_come_and_are_told() {
        check(
            "
            > GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania
            :2
            > ZSCORE g Palermo
            $16 3479099956230698
            > GEOADD g XX CH 13.5 38 Palermo 1 1 nobody
            :1
            > GEOADD g NX 13.361389 38.115556 Palermo
            :0
            > GEOADD g 13.361389 38.115556 Palermo
            :0
            > GEODIST g Palermo Catania
            $11 166274.1516
            > GEODIST g Palermo Catania KM
            $8 166.2742
            > GEODIST g Palermo nobody
            $-1
            > GEOHASH g Palermo nobody
            *2 $11 sqc8b49rny0 $-1
            > GEOPOS g Palermo nobody
            *2 *2 $20 13.36138933897018433 $20 38.11555639549629859 *-1
            3> GEOPOS g Palermo
            *1 *2 ,13.36138933897018433 ,38.11555639549629859
            > ZADD odd -2 a 1e30 b
            :2
            > GEOPOS odd a b
            *2 *2 $3 180 $19 85.0511287799999991 *2 $22 -179.99999731779098511 $21 -85.05112751263942528
            > GEOPOS missing a
            *1 *-1
            ",
        );
    }

    #[test]
    fn mistakes() {
        check(
            "
            > GEOADD g 181 0 a
            -ERR invalid longitude,latitude pair 181.000000,0.000000
            > GEOADD g 0 85.06 a
            -ERR invalid longitude,latitude pair 0.000000,85.060000
            > GEOADD g x 0 a
            -ERR value is not a valid float
            > GEOADD g 1 2 a 3
            -ERR syntax error
            > GEOADD g NX XX 1 2 a
            -ERR syntax error
            > GEOADD g NX CH NX
            -ERR syntax error
            > GEODIST g a b miles
            -ERR unsupported unit provided. please use M, KM, FT, MI
            > GEODIST g a b m m
            -ERR syntax error
            > EXISTS g
            :0
            ",
        );
    }
}
