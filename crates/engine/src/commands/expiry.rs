//! The parts that commands which set expiries share: times, options, conditions.

use crate::{
    command::{Args, CommandError},
    context::ExpiryChange,
};

/// Seconds, to the nearest one.
pub(super) fn to_seconds(milliseconds: u64) -> u64 {
    (milliseconds + 500) / 1000
}

/// The form of an option's time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Clock {
    /// `EX`: in this number of seconds.
    Seconds,
    /// `PX`: in this number of milliseconds.
    Milliseconds,
    /// `EXAT`: at a unix time in seconds.
    AtSeconds,
    /// `PXAT`: at a unix time in milliseconds.
    AtMilliseconds,
}

impl Clock {
    const TOKENS: [(&'static str, Clock); 4] = [
        ("EX", Clock::Seconds),
        ("PX", Clock::Milliseconds),
        ("EXAT", Clock::AtSeconds),
        ("PXAT", Clock::AtMilliseconds),
    ];

    /// The unix time in milliseconds that an amount means, 1 at least. The time may have passed, but
    /// one that does not lie within 63 bits is an error that names `command`.
    pub(super) fn at(self, amount: &[u8], now_ms: u64, command: &'static str) -> Result<u64, CommandError> {
        self.at_from(1, amount, now_ms, command)
    }

    /// [`Self::at`], of an amount from `least` on.
    pub(super) fn at_from(
        self,
        least: i64,
        amount: &[u8],
        now_ms: u64,
        command: &'static str,
    ) -> Result<u64, CommandError> {
        let amount = dunlin_resp::number::parse_integer(amount).ok_or(CommandError::NotInteger)?;
        let per_unit = match self {
            Self::Seconds | Self::AtSeconds => 1000,
            Self::Milliseconds | Self::AtMilliseconds => 1,
        };
        let origin = match self {
            Self::Seconds | Self::Milliseconds => now_ms as i64,
            Self::AtSeconds | Self::AtMilliseconds => 0,
        };
        let at = (amount >= least)
            .then(|| amount.checked_mul(per_unit)?.checked_add(origin))
            .flatten()
            .and_then(|at| u64::try_from(at).ok());
        at.ok_or(CommandError::InvalidExpire(command))
    }
}

/// The option of a request about the expiry.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum ExpiryOption<'a> {
    /// Nothing.
    #[default]
    None,
    /// A time: the clock and the amount as it was written.
    Time(Clock, &'a [u8]),
    /// `KEEPTTL`.
    Keep,
    /// `PERSIST`.
    Persist,
}

impl<'a> ExpiryOption<'a> {
    /// Reads the next option if it is one about the expiry; `word_option` is the one without an
    /// amount that the command takes. Naming the same option again is harmless, another one is a
    /// syntax error.
    pub(super) fn read(&mut self, args: &mut Args<'a>, word_option: (&str, Self)) -> bool {
        let told = if args.token(word_option.0) {
            word_option.1
        } else {
            let clock = Clock::TOKENS.into_iter().find(|(token, _)| args.token_with(token, 1));
            let Some((_, clock)) = clock else { return false };
            Self::Time(clock, args.word())
        };
        let compatible = match (*self, told) {
            (Self::None, _) => true,
            (Self::Time(one, _), Self::Time(other, _)) => one == other,
            (one, other) => one == other,
        };
        if !compatible {
            args.fail(CommandError::Syntax);
        }
        *self = told;
        true
    }

    /// The change of the expiry when the value is written.
    pub(super) fn change(self, now_ms: u64, command: &'static str) -> Result<ExpiryChange, CommandError> {
        Ok(match self {
            Self::None | Self::Persist => ExpiryChange::Clear,
            Self::Keep => ExpiryChange::Keep,
            Self::Time(clock, amount) => ExpiryChange::At(clock.at(amount, now_ms, command)?),
        })
    }
}

/// Which expiries may be replaced, for `EXPIRE` and its kin.
#[derive(Debug, Default)]
pub(super) struct Conditions {
    absent: bool,
    present: bool,
    later: bool,
    earlier: bool,
}

impl Conditions {
    /// Reads NX, XX, GT and LT.
    pub(super) fn parse(words: &[&[u8]]) -> Result<Self, CommandError> {
        let mut conditions = Self::default();
        for word in words {
            let condition = match word.to_ascii_uppercase().as_slice() {
                b"NX" => &mut conditions.absent,
                b"XX" => &mut conditions.present,
                b"GT" => &mut conditions.later,
                b"LT" => &mut conditions.earlier,
                _ => {
                    return Err(CommandError::quoting("ERR Unsupported option ", word));
                }
            };
            *condition = true;
        }
        let Self { absent, present, later, earlier } = conditions;
        if absent && (present || later || earlier) {
            return Err(CommandError::text(
                "ERR NX and XX, GT or LT options at the same time are not compatible",
            ));
        }
        if later && earlier {
            return Err(CommandError::text("ERR GT and LT options at the same time are not compatible"));
        }
        Ok(conditions)
    }

    /// Whether an expiry may be replaced by `at`; a value without one counts as never expiring.
    pub(super) fn allow(&self, current: Option<u64>, at: i64) -> bool {
        let current = current.map(|current| current as i64);
        !(self.absent && current.is_some()
            || self.present && current.is_none()
            || self.later && current.is_none_or(|current| at <= current)
            || self.earlier && current.is_some_and(|current| at >= current))
    }
}
