//! The options of a search, as all of its commands spell them.

use dunlin_structures::geohash::Coordinates;

use super::{parse_place, parse_unit, place_of, shape::Shape};
use crate::{
    command::{Args, CommandError},
    value::SortedSet,
};

/// How a command states the area, and its other options.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// Longitude, latitude, radius and unit in front; STORE where `stores`.
    Radius { stores: bool },
    /// Member, radius and unit in front; STORE where `stores`.
    RadiusByMember { stores: bool },
    /// Options; STOREDIST where the result is stored.
    Search { stores: bool },
}

/// The key that gets the result, and the form.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreTarget<'a> {
    pub(super) key: &'a [u8],
    /// The scores are distances, not geohashes.
    pub(super) distances: bool,
}

/// The order of the result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ResultOrder {
    Ascending,
    Descending,
}

/// A search.
#[derive(Debug)]
pub(super) struct Query<'a> {
    /// `None` if it is to be a member of a sorted set that is missing.
    pub(super) center: Option<Coordinates>,
    pub(super) shape: Shape,
    /// The unit of distances in the reply.
    pub(super) unit_meters: f64,
    pub(super) with_distance: bool,
    pub(super) with_geohash: bool,
    pub(super) with_place: bool,
    /// The largest number of places; 0 for all.
    pub(super) count: usize,
    /// Any of them instead of the nearest.
    pub(super) any: bool,
    pub(super) order: Option<ResultOrder>,
    pub(super) target: Option<StoreTarget<'a>>,
}

/// The options while they are read.
#[derive(Debug, Default)]
struct Draft {
    from_member: bool,
    /// Whether a place was given, or a member of a sorted set that is missing.
    from_place: bool,
    center: Option<Coordinates>,
    shape: Option<Shape>,
    unit_meters: f64,
}

impl Draft {
    /// Takes the place of a member for the center.
    fn start_at(&mut self, set: Option<&SortedSet>, member: &[u8]) -> Result<(), CommandError> {
        let Some(set) = set else {
            self.from_place = true;
            return Ok(());
        };
        let missing = CommandError::text("ERR could not decode requested zset member");
        self.center = Some(place_of(set.score(member).ok_or(missing)?));
        self.from_member = true;
        Ok(())
    }

    /// Reads a radius and its unit.
    fn parse_circle(&mut self, args: &mut Args<'_>) -> Result<(), CommandError> {
        let radius = args.float_or(CommandError::text("ERR need numeric radius"));
        args.check()?;
        if radius < 0.0 {
            return Err(CommandError::text("ERR radius cannot be negative"));
        }
        self.unit_meters = parse_unit(args)?;
        self.shape = Some(Shape::Circle { radius: radius * self.unit_meters });
        Ok(())
    }

    /// Reads a width, a height and their unit.
    fn parse_box(&mut self, args: &mut Args<'_>) -> Result<(), CommandError> {
        let width = args.float_or(CommandError::text("ERR need numeric width"));
        let height = args.float_or(CommandError::text("ERR need numeric height"));
        args.check()?;
        if width < 0.0 || height < 0.0 {
            return Err(CommandError::text("ERR height or width cannot be negative"));
        }
        self.unit_meters = parse_unit(args)?;
        self.shape = Some(Shape::Box { width: width * self.unit_meters, height: height * self.unit_meters });
        Ok(())
    }

    /// Reads a number of corners, then these.
    fn parse_polygon(&mut self, args: &mut Args<'_>) -> Result<(), CommandError> {
        const CORNERS_MIN: usize = 3;
        let not_a_number = CommandError::text("ERR invalid number of vertices");
        let count = args.integer_in(i32::MIN.into()..=i32::MAX.into(), not_a_number);
        args.check()?;
        let count = usize::try_from(count).unwrap_or(0);
        if count < CORNERS_MIN || args.remaining() / 2 < count {
            return Err(CommandError::text("ERR GEOSEARCH BYPOLYGON must have at least 3 vertices"));
        }
        let corners: Vec<Coordinates> = (0..count).map(|_| parse_place(args)).collect::<Result<_, _>>()?;
        self.center = Some(Shape::middle(&corners));
        self.unit_meters = 1.0;
        self.shape = Some(Shape::Polygon(corners));
        Ok(())
    }
}

impl<'a> Query<'a> {
    /// Reads everything behind the source key. `set` is what that holds, `target` the destination
    /// of GEOSEARCHSTORE.
    pub(super) fn parse(
        args: &mut Args<'a>,
        form: Form,
        set: Option<&SortedSet>,
        mut target: Option<StoreTarget<'a>>,
    ) -> Result<Self, CommandError> {
        let mut draft = Draft::default();
        match form {
            Form::Radius { .. } => {
                draft.center = Some(parse_place(args)?);
                draft.parse_circle(args)?;
            }
            // The radius around a member of nothing does not matter.
            Form::RadiusByMember { .. } if set.is_none() => {
                args.take(3);
                draft.shape = Some(Shape::Circle { radius: 0.0 });
            }
            Form::RadiusByMember { .. } => {
                draft.start_at(set, args.word())?;
                draft.parse_circle(args)?;
            }
            Form::Search { .. } => {}
        }
        let searches = matches!(form, Form::Search { .. });
        let stores_search = form == Form::Search { stores: true };
        let takes_target =
            matches!(form, Form::Radius { stores: true } | Form::RadiusByMember { stores: true });
        let (mut with_distance, mut with_geohash, mut with_place) = (false, false, false);
        let (mut count, mut any, mut order) = (0, false, None);
        while !args.is_empty() {
            let has_polygon = matches!(draft.shape, Some(Shape::Polygon(_)));
            if args.token("WITHDIST") {
                with_distance = true;
            } else if args.token("WITHHASH") {
                with_geohash = true;
            } else if args.token("WITHCOORD") {
                with_place = true;
            } else if args.token("ANY") {
                any = true;
            } else if args.token("ASC") {
                order = Some(ResultOrder::Ascending);
            } else if args.token("DESC") {
                order = Some(ResultOrder::Descending);
            } else if args.token_with("COUNT", 1) {
                let wanted = args.integer();
                args.check()?;
                let too_few = CommandError::text("ERR COUNT must be > 0");
                count = usize::try_from(wanted).ok().filter(|count| *count > 0).ok_or(too_few)?;
            } else if takes_target && args.token_with("STORE", 1) {
                target = Some(StoreTarget { key: args.word(), distances: false });
            } else if takes_target && args.token_with("STOREDIST", 1) {
                target = Some(StoreTarget { key: args.word(), distances: true });
            } else if stores_search && args.token("STOREDIST") {
                target = target.map(|target| StoreTarget { distances: true, ..target });
            } else if searches && !draft.from_place && !has_polygon && args.token_with("FROMMEMBER", 1) {
                draft.start_at(set, args.word())?;
            } else if searches && !draft.from_member && !has_polygon && args.token_with("FROMLONLAT", 2) {
                draft.center = Some(parse_place(args)?);
                draft.from_place = true;
            } else if searches
                && matches!(draft.shape, None | Some(Shape::Circle { .. }))
                && args.token_with("BYRADIUS", 2)
            {
                draft.parse_circle(args)?;
            } else if searches
                && matches!(draft.shape, None | Some(Shape::Box { .. }))
                && args.token_with("BYBOX", 3)
            {
                draft.parse_box(args)?;
            } else if searches
                && draft.shape.is_none()
                && !draft.from_place
                && !draft.from_member
                && args.token_with("BYPOLYGON", 1)
            {
                draft.parse_polygon(args)?;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        if target.is_some() && (with_distance || with_geohash || with_place) {
            return Err(CommandError::text(if stores_search {
                "ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            } else {
                "ERR STORE option in GEORADIUS is not compatible with WITHDIST, WITHHASH and WITHCOORD options"
            }));
        }
        let is_polygon = matches!(draft.shape, Some(Shape::Polygon(_)));
        if searches && !is_polygon && !draft.from_member && !draft.from_place {
            let text = "ERR exactly one of FROMMEMBER or FROMLONLAT can be specified for ";
            return Err(CommandError::quoting(text, args.words()[0]));
        }
        let Some(shape) = draft.shape else {
            let text = "ERR exactly one of BYRADIUS, BYBOX and BYPOLYGON can be specified for ";
            return Err(CommandError::quoting(text, args.words()[0]));
        };
        if any && count == 0 {
            return Err(CommandError::text("ERR the ANY argument requires COUNT argument"));
        }
        // The nearest are meant, unless any will do.
        if count > 0 && !any {
            order = order.or(Some(ResultOrder::Ascending));
        }
        Ok(Self {
            center: draft.center,
            shape,
            unit_meters: draft.unit_meters,
            with_distance,
            with_geohash,
            with_place,
            count,
            any,
            order,
            target,
        })
    }
}

/// The place of a GEORADIUS's destination among its words: the last one named.
pub(super) fn stored_at(words: &[&[u8]], options_at: usize) -> Option<usize> {
    let mut at = options_at;
    let mut found = None;
    while let Some(word) = words.get(at) {
        let is = |token: &[u8]| word.eq_ignore_ascii_case(token);
        if is(b"COUNT") && at + 1 < words.len() {
            at += 1;
        } else if (is(b"STORE") || is(b"STOREDIST")) && at + 1 < words.len() {
            at += 1;
            found = Some(at);
        }
        at += 1;
    }
    found
}
