//! The rows of `INFO`: one for each metric, from which the reply, `CONFIG RESETSTAT` and docs/info.md derive.

use std::{
    borrow::Cow,
    fmt::{self, Display},
    time::Instant,
};

use dunlin_replication::LinkState;

use super::Reading;

/// The unit of a row's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    /// A number of things.
    Count,
    /// 0 for no, 1 for yes.
    Flag,
    Bytes,
    /// Units of 1024 bytes, each second.
    KilobytesPerSecond,
    PerSecond,
    Days,
    Seconds,
    Milliseconds,
    Microseconds,
    /// Seconds since 1970.
    UnixSeconds,
    /// Microseconds since 1970.
    UnixMicroseconds,
    Percent,
    Ratio,
}

/// How the value of a row is read.
#[derive(Clone, Copy)]
pub(crate) enum Read {
    /// A count that only grows. `since_reset`: counted from the last `CONFIG RESETSTAT` on.
    Counter { since_reset: bool, read: fn(&Reading<'_>) -> u64 },
    /// A number that rises and falls.
    Gauge(fn(&Reading<'_>) -> Number),
    /// No number.
    Text(for<'a> fn(&'a Reading<'_>) -> Cow<'a, str>),
    /// A fixed value, under a name that tools read, for a thing that is not there.
    Always(&'static str),
}

/// A number as `INFO` writes it.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Number {
    Integer(i64),
    /// A number with this many digits behind the point.
    Decimal(f64, usize),
    /// A number with a percent sign.
    Percent(f64),
}

impl Display for Number {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Number::Integer(value) => write!(out, "{value}"),
            Number::Decimal(value, digits) => write!(out, "{value:.digits$}"),
            Number::Percent(value) => write!(out, "{value:.2}%"),
        }
    }
}

macro_rules! number_from {
    ($($integer:ty),*) => {
        $(impl From<$integer> for Number {
            /// Numbers beyond 63 bits are clipped: nothing here is that large.
            fn from(value: $integer) -> Self {
                Number::Integer(i64::try_from(value).unwrap_or(i64::MAX))
            }
        })*
    };
}
number_from!(u8, u16, u32, i64, u64, u128, usize);

impl From<bool> for Number {
    fn from(value: bool) -> Self {
        Number::Integer(value.into())
    }
}

/// When a row is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    Always,
    /// While the append-only file is on.
    WithLog,
    /// While a data set is loaded.
    WhileLoading,
    /// While the server is a replica.
    OfReplicas,
    /// While a snapshot comes from the primary.
    WhileSyncing,
    /// While the primary's stream does not come.
    WhileLinkIsDown,
    /// While the primary's stream does not come, since an attempt to have it failed.
    WhileLinkFails,
    /// While a shutdown waits for replicas.
    WhileShuttingDown,
    /// Only if `min-replicas-to-write` is set.
    WithMinReplicas,
}

impl Shown {
    /// Whether the condition is met.
    pub(super) fn is_met(self, reading: &Reading<'_>) -> bool {
        let replication = &reading.shared.replication;
        match self {
            Self::Always => true,
            Self::WithLog => reading.config.appendonly,
            Self::WhileLoading => reading.loading().is_some(),
            Self::OfReplicas => replication.is_replica(),
            Self::WhileSyncing => replication.is_replica() && replication.link().state == LinkState::Sync,
            Self::WhileLinkIsDown => {
                replication.is_replica() && replication.link().state != LinkState::Connected
            }
            Self::WhileLinkFails => {
                let link = replication.link();
                replication.is_replica() && link.state != LinkState::Connected && link.error().is_some()
            }
            Self::WhileShuttingDown => reading.shared.shutdown.left(Instant::now()).is_some(),
            Self::WithMinReplicas => {
                reading.config.min_replicas_to_write > 0 && reading.config.min_replicas_max_lag > 0
            }
        }
    }
}

/// A metric: one line of `INFO`, or two.
#[derive(Clone, Copy)]
pub(crate) struct Metric {
    pub(crate) name: &'static str,
    pub(crate) unit: Unit,
    pub(crate) read: Read,
    /// Its meaning, in one sentence.
    pub(crate) summary: &'static str,
    /// Whether the line `<name>_human` follows, with the largest unit that leaves a number of one or more.
    pub(crate) human: bool,
    pub(crate) shown: Shown,
}

impl Metric {
    const fn new(name: &'static str, unit: Unit, read: Read, summary: &'static str) -> Self {
        Self { name, unit, read, summary, human: false, shown: Shown::Always }
    }

    /// A count since the start.
    pub(crate) const fn counter(
        name: &'static str,
        unit: Unit,
        summary: &'static str,
        read: fn(&Reading<'_>) -> u64,
    ) -> Self {
        Self::new(name, unit, Read::Counter { since_reset: false, read }, summary)
    }

    /// A count since the last `CONFIG RESETSTAT`, or the start.
    pub(crate) const fn resettable(
        name: &'static str,
        unit: Unit,
        summary: &'static str,
        read: fn(&Reading<'_>) -> u64,
    ) -> Self {
        Self::new(name, unit, Read::Counter { since_reset: true, read }, summary)
    }

    pub(crate) const fn gauge(
        name: &'static str,
        unit: Unit,
        summary: &'static str,
        read: fn(&Reading<'_>) -> Number,
    ) -> Self {
        Self::new(name, unit, Read::Gauge(read), summary)
    }

    /// Is there while the server is a replica.
    pub(crate) const fn of_replicas(self) -> Self {
        Self { shown: Shown::OfReplicas, ..self }
    }

    /// Is there while a snapshot comes from the primary.
    pub(crate) const fn while_syncing(self) -> Self {
        Self { shown: Shown::WhileSyncing, ..self }
    }

    /// Is there while the primary's stream does not come.
    pub(crate) const fn while_link_is_down(self) -> Self {
        Self { shown: Shown::WhileLinkIsDown, ..self }
    }

    /// Is there if `min-replicas-to-write` is set.
    pub(crate) const fn with_min_replicas(self) -> Self {
        Self { shown: Shown::WithMinReplicas, ..self }
    }

    /// A gauge of bytes with a line for humans.
    pub(crate) const fn bytes(
        name: &'static str,
        summary: &'static str,
        read: fn(&Reading<'_>) -> Number,
    ) -> Self {
        Self { human: true, ..Self::gauge(name, Unit::Bytes, summary, read) }
    }

    pub(crate) const fn text(
        name: &'static str,
        summary: &'static str,
        read: for<'a> fn(&'a Reading<'_>) -> Cow<'a, str>,
    ) -> Self {
        Self::new(name, Unit::Count, Read::Text(read), summary)
    }

    /// `value` always.
    pub(crate) const fn always(name: &'static str, value: &'static str, summary: &'static str) -> Self {
        Self::new(name, Unit::Count, Read::Always(value), summary)
    }

    /// 0 always.
    pub(crate) const fn none(name: &'static str, summary: &'static str) -> Self {
        Self::always(name, "0", summary)
    }

    pub(crate) const fn shown(self, shown: Shown) -> Self {
        Self { shown, ..self }
    }
}

/// Metrics of which there is a line for each of something, `<prefix><label>:<field>=<value>,…`.
#[derive(Clone, Copy)]
pub(crate) struct Family {
    /// The part of the name in front of the label.
    pub(crate) prefix: &'static str,
    /// The things that have a line each, as documents name them.
    #[cfg_attr(not(test), expect(dead_code, reason = "for docs/info.md, which a test writes"))]
    pub(crate) label: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for docs/info.md, which a test writes"))]
    pub(crate) summary: &'static str,
    /// Names of fields with their meanings.
    pub(crate) fields: &'static [(&'static str, Unit, &'static str)],
    /// Calls back for each line, with the values of its fields.
    pub(crate) read: fn(&Reading<'_>, &mut Line<'_>),
}

/// Takes the label of a line and its fields.
pub(crate) type Line<'a> = dyn FnMut(&dyn Display, &[(&str, Number)]) + 'a;

/// A row of a section.
#[derive(Clone, Copy)]
pub(crate) enum Row {
    One(Metric),
    Each(Family),
    Texts(Texts),
}

/// Lines of which there may be any number, with fields that are not numbers.
#[derive(Clone, Copy)]
pub(crate) struct Texts {
    /// Their names, as documents have them.
    #[cfg_attr(not(test), expect(dead_code, reason = "for docs/info.md, which a test writes"))]
    pub(crate) name: &'static str,
    #[cfg_attr(not(test), expect(dead_code, reason = "for docs/info.md, which a test writes"))]
    pub(crate) summary: &'static str,
    /// Calls back for each line.
    pub(crate) read: fn(&Reading<'_>, AddLine<'_>),
}

/// Adds a line, without its end.
pub(crate) type AddLine<'a> = &'a mut dyn FnMut(&str);
