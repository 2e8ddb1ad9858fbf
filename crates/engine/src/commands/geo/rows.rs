//! The commands that search: one search in several spellings.

use dunlin_resp::ReplyBuffer;

use super::{
    members::UNITS,
    query::{Form, Query, StoreTarget, stored_at},
    search::{Around, find, gather, tell},
};
use crate::{
    command::{Args, Argument, Arity, Command, CommandError, CommandResult, Flags, Group, KeySpec, Run},
    commands::sorted_set::{set_of, store},
    context::{ReadContext, WriteContext},
    keyspace::EntryRef,
    value::SortedSet,
};

const UNIT: Argument = Argument::one_of("unit", UNITS);
const RADIUS: Argument = Argument::double("radius");
const LONGITUDE: Argument = Argument::double("longitude");
const LATITUDE: Argument = Argument::double("latitude");
const WITHCOORD: Argument = Argument::word("withcoord", "WITHCOORD").optional();
const WITHDIST: Argument = Argument::word("withdist", "WITHDIST").optional();
const WITHHASH: Argument = Argument::word("withhash", "WITHHASH").optional();
const COUNT: Argument = Argument::block(
    "count-block",
    &[Argument::integer("count").after("COUNT"), Argument::word("any", "ANY").optional().since("6.2.0")],
)
.optional();
const ORDER: Argument =
    Argument::one_of("order", &[Argument::word("asc", "ASC"), Argument::word("desc", "DESC")]).optional();
const STORE: Argument = Argument::one_of(
    "store",
    &[
        Argument::key("storekey").key_spec(1).after("STORE"),
        Argument::key("storedistkey").key_spec(1).after("STOREDIST"),
    ],
)
.optional();
const FROM: Argument = Argument::one_of(
    "from",
    &[
        Argument::string("member").after("FROMMEMBER"),
        Argument::block("fromlonlat", &[LONGITUDE, LATITUDE]).after("FROMLONLAT"),
    ],
)
.optional();
const BY: Argument = Argument::one_of(
    "by",
    &[
        Argument::block("circle", &[RADIUS.after("BYRADIUS"), UNIT]),
        Argument::block("box", &[Argument::double("width").after("BYBOX"), Argument::double("height"), UNIT]),
        Argument::block(
            "polygon",
            &[
                Argument::integer("num-vertices").after("BYPOLYGON"),
                Argument::block("vertices", &[LONGITUDE, LATITUDE]).multiple(),
            ],
        )
        .since("9.0.0"),
    ],
);

pub(super) const GEORADIUS: Command = Command {
    name: "georadius",
    summary: "Returns or stores the places within a distance of a point.",
    since: "3.2.0",
    group: Group::Geo,
    complexity: "O(n + m log m) for n members around the area and m in it",
    arity: Arity::AtLeast(6),
    run: Run::Write(georadius),
    flags: Flags::DENY_OOM,
    keys: &[
        KeySpec::at(1).accesses(),
        KeySpec::found_by(|words| stored_at(words, RADIUS_OPTIONS_AT)).overwrite().updates(),
    ],
    args: &[
        Argument::key("key"),
        LONGITUDE,
        LATITUDE,
        RADIUS,
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT,
        ORDER,
        STORE,
    ],
    ..Command::DEFAULT
};

pub(super) const GEORADIUS_RO: Command = Command {
    name: "georadius_ro",
    summary: "Returns the places within a distance of a point.",
    since: "3.2.10",
    run: Run::Read(georadius_ro),
    flags: Flags::NONE,
    keys: &[KeySpec::at(1).accesses()],
    args: &[
        Argument::key("key"),
        LONGITUDE,
        LATITUDE,
        RADIUS,
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT,
        ORDER,
    ],
    ..GEORADIUS
};

pub(super) const GEORADIUSBYMEMBER: Command = Command {
    name: "georadiusbymember",
    summary: "Returns or stores the places within a distance of a member.",
    arity: Arity::AtLeast(5),
    run: Run::Write(georadiusbymember),
    keys: &[
        KeySpec::at(1).accesses(),
        KeySpec::found_by(|words| stored_at(words, MEMBER_OPTIONS_AT)).overwrite().updates(),
    ],
    args: &[
        Argument::key("key"),
        Argument::string("member"),
        RADIUS,
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT,
        ORDER,
        STORE,
    ],
    ..GEORADIUS
};

pub(super) const GEORADIUSBYMEMBER_RO: Command = Command {
    name: "georadiusbymember_ro",
    summary: "Returns the places within a distance of a member.",
    arity: Arity::AtLeast(5),
    run: Run::Read(georadiusbymember_ro),
    args: &[
        Argument::key("key"),
        Argument::string("member"),
        RADIUS,
        UNIT,
        WITHCOORD,
        WITHDIST,
        WITHHASH,
        COUNT,
        ORDER,
    ],
    ..GEORADIUS_RO
};

pub(super) const GEOSEARCH: Command = Command {
    name: "geosearch",
    summary: "Returns the places in a circle, a box or a polygon.",
    since: "6.2.0",
    arity: Arity::AtLeast(7),
    run: Run::Read(geosearch),
    args: &[Argument::key("key"), FROM, BY, ORDER, COUNT, WITHCOORD, WITHDIST, WITHHASH],
    ..GEORADIUS_RO
};

pub(super) const GEOSEARCHSTORE: Command = Command {
    name: "geosearchstore",
    summary: "Stores the places in a circle, a box or a polygon.",
    since: "6.2.0",
    arity: Arity::AtLeast(8),
    run: Run::Write(geosearchstore),
    keys: &[KeySpec::at(1).overwrite().updates(), KeySpec::at(2).accesses()],
    args: &[
        Argument::key("destination"),
        Argument::key("source").key_spec(1),
        FROM,
        BY,
        ORDER,
        COUNT,
        Argument::word("storedist", "STOREDIST").optional(),
    ],
    ..GEORADIUS
};

/// Place of the first option of GEORADIUS.
const RADIUS_OPTIONS_AT: usize = 6;
/// Place of the first option of GEORADIUSBYMEMBER.
const MEMBER_OPTIONS_AT: usize = 5;

fn georadius(context: &mut WriteContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    find_and_store(context, args, reply, Form::Radius { stores: true })
}

fn georadius_ro(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    answer(context, args, reply, Form::Radius { stores: false })
}

fn georadiusbymember(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    find_and_store(context, args, reply, Form::RadiusByMember { stores: true })
}

fn georadiusbymember_ro(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    answer(context, args, reply, Form::RadiusByMember { stores: false })
}

fn geosearch(context: &mut ReadContext<'_>, args: &mut Args<'_>, reply: &mut ReplyBuffer) -> CommandResult {
    answer(context, args, reply, Form::Search { stores: false })
}

fn geosearchstore(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
) -> CommandResult {
    find_and_store(context, args, reply, Form::Search { stores: true })
}

fn answer(
    context: &mut ReadContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    form: Form,
) -> CommandResult {
    let set = context.collection::<SortedSet>(args.word())?;
    let set = set.as_deref();
    let query = Query::parse(args, form, set, None)?;
    let mut found = Vec::new();
    if let Some(set) = set {
        let around = Around::of(set, &query);
        context.weigh(around.visits())?;
        found = find(set, around, &query);
    }
    tell(&found, &query, reply);
    Ok(())
}

fn find_and_store(
    context: &mut WriteContext<'_>,
    args: &mut Args<'_>,
    reply: &mut ReplyBuffer,
    form: Form,
) -> CommandResult {
    let target = match form {
        Form::Search { .. } => Some(StoreTarget { key: args.word(), distances: false }),
        Form::Radius { .. } => target_of(args.words(), RADIUS_OPTIONS_AT),
        Form::RadiusByMember { .. } => target_of(args.words(), MEMBER_OPTIONS_AT),
    };
    let source = args.word();
    context.check_entries(&[source], |entry| set_of(entry).map(drop).ok_or(CommandError::WrongType))?;
    let mut given = args.clone();
    let visits = |entries: &[Option<EntryRef<'_>>]| {
        let Some(set) = entries[0].and_then(set_of) else { return 0 };
        let query = Query::parse(&mut given, form, Some(&set), target);
        query.map_or(0, |query| Around::of(&set, &query).visits())
    };
    let Some(target) = target else {
        return context.examine(&[source], visits, |entries| {
            let set = entries[0].and_then(set_of);
            let set = set.as_deref();
            let query = Query::parse(args, form, set, None)?;
            let found = set.map_or_else(Vec::new, |set| find(set, Around::of(set, &query), &query));
            tell(&found, &query, reply);
            Ok(())
        })?;
    };
    let result = context.compute(&[source], visits, |entries, layout| {
        let set = entries[0].and_then(set_of);
        let set = set.as_deref();
        let query = Query::parse(args, form, set, Some(target))?;
        let distances = query.target.is_some_and(|target| target.distances);
        let found = set.map_or_else(Vec::new, |set| find(set, Around::of(set, &query), &query));
        Ok::<_, CommandError>(gather(&found, distances, layout))
    })??;
    let searches = form == Form::Search { stores: true };
    let event = if searches { "geosearchstore" } else { "georadiusstore" };
    context.count_changes(result.len());
    store(context, target.key, result, event, reply);
    Ok(())
}

/// The destination that the options of a GEORADIUS name.
fn target_of<'a>(words: &[&'a [u8]], options_at: usize) -> Option<StoreTarget<'a>> {
    stored_at(words, options_at).map(|at| StoreTarget { key: words[at], distances: false })
}

#[cfg(test)]
mod tests {
    use crate::transcript::check;

    const PLACES: &str = "
            > GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 2.349014 48.864716 Paris
            :3
            ";

    fn check_places(script: &str) {
        check(&format!("{PLACES}{script}"));
    }

    #[test]
    fn circles_boxes_and_polygons() {
        check_places(
            "
            > GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 200 km ASC
            *2 $7 Catania $7 Palermo
            > GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 100 km WITHDIST WITHHASH WITHCOORD
            *1 *4 $7 Catania $7 56.4413 :3479447370796909 *2 $20 15.08726745843887329 $20 37.50266842333162032
            > GEOSEARCH g FROMMEMBER Palermo BYBOX 400 200 km DESC WITHDIST COUNT 1
            *1 *2 $7 Catania $8 166.2742
            > GEOSEARCH g BYPOLYGON 4 10 36 20 36 20 40 10 40 WITHDIST DESC
            *2 *2 $7 Palermo $11 143404.9745 *2 $7 Catania $10 67546.0182
            > GEORADIUS g 15 37 200 km COUNT 1
            *1 $7 Catania
            > GEORADIUS_RO g 15 37 200 km COUNT 1 ANY
            *1 $7 Palermo
            > GEORADIUSBYMEMBER g Palermo 0 m
            *1 $7 Palermo
            > GEORADIUSBYMEMBER_RO g Palermo 1000000 m DESC
            *2 $7 Catania $7 Palermo
            > GEOSEARCH g FROMLONLAT 0 0 BYRADIUS 30000 km ASC
            *3 $7 Catania $7 Palermo $5 Paris
            > GEOSEARCH missing FROMMEMBER nobody BYRADIUS 1 km
            *0
            ",
        );
    }

    #[test]
    fn geosearch_finds_places_across_pole_and_antimeridian() {
        check(
            "
            > GEOADD g 180 85 over 0 85 here -180 85 same 90 85.05112878 top 179.9 0 east -179.9 0 west -180 0 between
            :7
            > GEOSEARCH g FROMLONLAT 0 85 BYRADIUS 2000 km ASC WITHDIST
            *4 *2 $4 here $6 0.0000 *2 $3 top $8 781.9857 *2 $4 same $9 1112.2630 *2 $4 over $9 1112.2630
            > GEOSEARCH g FROMMEMBER over BYRADIUS 1 km ASC
            *2 $4 over $4 same
            > GEOSEARCH g FROMLONLAT 10 85 BYBOX 20000 1 km ASC
            *3 $4 here $4 over $4 same
            > GEOSEARCH g FROMMEMBER east BYRADIUS 23 km ASC
            *3 $4 east $7 between $4 west
            > GEOSEARCH g FROMMEMBER west BYBOX 50 1 km ASC
            *3 $4 west $7 between $4 east
            > GEOSEARCHSTORE d g FROMLONLAT 0 0 BYRADIUS 30000 km
            :7
            ",
        );
    }

    #[test]
    fn storing() {
        check_places(
            "
            > GEORADIUS g 15 37 200 km STORE d
            :2
            > ZRANGE d 0 -1 WITHSCORES
            *4 $7 Palermo $16 3479099956230698 $7 Catania $16 3479447370796909
            > GEOSEARCHSTORE d g FROMLONLAT 15 37 BYRADIUS 200 km STOREDIST
            :2
            > ZRANGE d 0 -1
            *2 $7 Catania $7 Palermo
            > GEORADIUSBYMEMBER g Palermo 1 m STORE STORE STOREDIST d
            :1
            > ZSCORE d Palermo
            $1 0
            > GEORADIUS g 0 0 1 m STORE d
            :0
            > EXISTS d STORE
            :0
            > GEORADIUS missing 0 0 1 m STORE g
            :0
            > EXISTS g
            :0
            ",
        );
    }

    #[test]
    fn mistakes() {
        check_places(
            "
            > GEOSEARCH g FROMMEMBER nobody BYRADIUS 1 km
            -ERR could not decode requested zset member
            > GEOSEARCH g FROMLONLAT 15 37 BYRADIUS -1 km
            -ERR radius cannot be negative
            > GEOSEARCH g FROMLONLAT 15 37 BYRADIUS x km
            -ERR need numeric radius
            > GEOSEARCH g FROMLONLAT 15 37 BYBOX 1 x km
            -ERR need numeric height
            > GEOSEARCH g FROMLONLAT 15 37 BYBOX -1 1 km
            -ERR height or width cannot be negative
            > GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 1 furlong
            -ERR unsupported unit provided. please use M, KM, FT, MI
            > GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 1 km COUNT 0
            -ERR COUNT must be > 0
            > GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 1 km ANY
            -ERR the ANY argument requires COUNT argument
            > GEOSEARCH g FROMLONLAT 15 37 ASC DESC
            -ERR exactly one of BYRADIUS, BYBOX and BYPOLYGON can be specified for GEOSEARCH
            > GEOSEARCH g BYRADIUS 1 km ASC DESC
            -ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for GEOSEARCH
            > GEOSEARCH g FROMLONLAT 15 37 BYRADIUS 1 km BYBOX 1 1 km
            -ERR syntax error
            > GEOSEARCH g FROMLONLAT 15 37 FROMMEMBER Palermo BYRADIUS 1 km
            -ERR syntax error
            > GEOSEARCH g FROMLONLAT 15 37 BYPOLYGON 3 1 1 2 2 3 1
            -ERR syntax error
            > GEOSEARCH g BYPOLYGON 2 10 36 20 36
            -ERR GEOSEARCH BYPOLYGON must have at least 3 vertices
            > GEOSEARCH g BYPOLYGON x 10 36 20 36
            -ERR invalid number of vertices
            > GEOSEARCHSTORE d g FROMLONLAT 15 37 BYRADIUS 1 km WITHDIST
            -ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options
            > GEORADIUS g 15 37 1 km WITHDIST STORE d
            -ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options
            > GEORADIUS_RO g 15 37 1 km STORE d
            -ERR syntax error
            > SET text v
            +OK
            > GEOSEARCH text NONSENSE 1 2 3 4
            -WRONGTYPE Operation against a key holding the wrong kind of value
            ",
        );
    }
}
