//! Finding places, telling and storing them.

use std::ops::Range;

use dunlin_resp::ReplyBuffer;
use dunlin_structures::{Element, geohash::Coordinates};

use super::{
    place_of,
    query::{Query, ResultOrder},
    reply_length, reply_place,
};
use crate::{
    commands::sorted_set::reply_member,
    value::{Gathered, Layout, SortedSet},
};

/// A place that was found.
#[derive(Debug)]
pub(super) struct Found<'a> {
    member: Element<'a>,
    geohash: f64,
    place: Coordinates,
    /// From the center, in the unit asked for.
    distance: f64,
}

/// Ranks of the members that a search has to look at.
pub(super) struct Around {
    ranks: Vec<Range<usize>>,
    /// How many it takes at most.
    limit: usize,
}

impl Around {
    /// The ranks and the area of a query. O(log n).
    pub(super) fn of(set: &SortedSet, query: &Query<'_>) -> Self {
        let ranks = query.center.into_iter().flat_map(|center| query.shape.ranges(center)).map(|geohashes| {
            let start = set.partition_scores(|score| score < geohashes.start as f64);
            let end = set.partition_scores(|score| score < geohashes.end as f64);
            start..end
        });
        Self { ranks: ranks.collect(), limit: if query.any { query.count } else { usize::MAX } }
    }

    /// Roughly how many members will be visited.
    pub(super) fn visits(&self) -> usize {
        /// Members around an area for one in it, if it is neither tiny nor empty.
        const VISITS_PER_PLACE: usize = 8;
        let members = self.ranks.iter().map(ExactSizeIterator::len).sum::<usize>();
        members.min(self.limit.saturating_mul(VISITS_PER_PLACE))
    }
}

/// The places that a search asks for, in order.
pub(super) fn find<'a>(set: &'a SortedSet, around: Around, query: &Query<'_>) -> Vec<Found<'a>> {
    let Some(center) = query.center else { return Vec::new() };
    let mut found = Vec::new();
    for ranks in around.ranks {
        if found.len() >= around.limit {
            break;
        }
        set.for_range(ranks, false, |member, geohash| {
            if found.len() >= around.limit {
                return;
            }
            let place = place_of(geohash);
            if let Some(meters) = query.shape.distance_to(center, place) {
                found.push(Found { member, geohash, place, distance: meters / query.unit_meters });
            }
        });
    }
    match query.order {
        Some(ResultOrder::Ascending) => found.sort_by(|one, other| one.distance.total_cmp(&other.distance)),
        Some(ResultOrder::Descending) => found.sort_by(|one, other| other.distance.total_cmp(&one.distance)),
        None => {}
    }
    if query.count > 0 {
        found.truncate(query.count);
    }
    found
}

/// Writes the found members to the reply.
pub(super) fn tell(found: &[Found<'_>], query: &Query<'_>, reply: &mut ReplyBuffer) {
    let extras = [query.with_distance, query.with_geohash, query.with_place];
    let extras = extras.into_iter().filter(|wanted| *wanted).count();
    reply.array(found.len());
    for Found { member, geohash, place, distance } in found {
        if extras > 0 {
            reply.array(1 + extras);
        }
        reply_member(reply, *member);
        if query.with_distance {
            reply_length(reply, *distance);
        }
        if query.with_geohash {
            reply.integer(*geohash as i64);
        }
        if query.with_place {
            reply_place(reply, *place);
        }
    }
}

/// Returns the found members as a sorted set, whose scores are distances or geohashes.
pub(super) fn gather(found: &[Found<'_>], distances: bool, layout: Layout<'_>) -> SortedSet {
    let mut gathered = Gathered::new(layout);
    for Found { member, geohash, distance, .. } in found {
        gathered.add(&member.text(), |_| if distances { *distance } else { *geohash });
    }
    gathered.finish(layout)
}
