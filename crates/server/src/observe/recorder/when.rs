//! The times that `RECORDER WHY AT` understands. All are UTC, as those of the server log.

/// A time that is asked about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum When {
    /// The minute that has just passed.
    LastMinute,
    /// The minute that begins at this second since 1970.
    Minute(u32),
    /// The time around this second since 1970.
    Second(u32),
}

/// Why a time is not understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WhenError {
    Syntax,
    Future,
}

const DAY_S: u32 = 86_400;
/// How much of the time on both sides of a second is looked at.
const AROUND_S: u32 = 15;

impl When {
    /// Reads a time; one without a date is the last of that name before `now_s`.
    pub(crate) fn parse(word: &[u8], now_s: u32) -> Result<Self, WhenError> {
        let word = std::str::from_utf8(word).map_err(|_| WhenError::Syntax)?;
        let word = word.strip_suffix('Z').unwrap_or(word);
        let when = if word.len() > 8 && word.bytes().all(|byte| byte.is_ascii_digit()) {
            Self::Second(word.parse().map_err(|_| WhenError::Syntax)?)
        } else if let Some((date, time)) = word.split_once(['T', ' ']) {
            let day = parse_date(date).ok_or(WhenError::Syntax)?;
            let (of_day, has_seconds) = parse_time(time).ok_or(WhenError::Syntax)?;
            let second = day.checked_mul(DAY_S).and_then(|day_s| day_s.checked_add(of_day));
            Self::at(second.ok_or(WhenError::Syntax)?, has_seconds)
        } else {
            let (of_day, has_seconds) = parse_time(word).ok_or(WhenError::Syntax)?;
            let today = now_s - now_s % DAY_S + of_day;
            Self::at(if today > now_s { today - DAY_S } else { today }, has_seconds)
        };
        match when {
            Self::Minute(second) | Self::Second(second) if second > now_s => Err(WhenError::Future),
            when => Ok(when),
        }
    }

    fn at(second: u32, has_seconds: bool) -> Self {
        if has_seconds { Self::Second(second) } else { Self::Minute(second) }
    }

    /// Its first and last second, at `now_s`.
    pub(crate) fn span(self, now_s: u32) -> (u32, u32) {
        match self {
            Self::LastMinute => (now_s.saturating_sub(60), now_s.saturating_sub(1)),
            Self::Minute(second) => (second, second + 59),
            Self::Second(second) => (second.saturating_sub(AROUND_S), second + AROUND_S),
        }
    }
}

/// Seconds of the day, and whether they were said.
fn parse_time(text: &str) -> Option<(u32, bool)> {
    let mut parts = text.split(':');
    let (hour, minute) = (number(parts.next()?, 0, 23)?, number(parts.next()?, 0, 59)?);
    let second = parts.next().map(|second| number(second, 0, 59).ok_or(())).transpose().ok()?;
    parts.next().is_none().then_some((hour * 3600 + minute * 60 + second.unwrap_or(0), second.is_some()))
}

/// Days since 1970 (Howard Hinnant's `days_from_civil`, for years from 1970 on).
fn parse_date(text: &str) -> Option<u32> {
    let mut parts = text.split('-');
    let year = number(parts.next()?, 1970, 2105)?;
    let (month, day) = (number(parts.next()?, 1, 12)?, number(parts.next()?, 1, 31)?);
    if parts.next().is_some() {
        return None;
    }
    let from_march = if month > 2 { month - 3 } else { month + 9 };
    let year = if month > 2 { year } else { year - 1 };
    let (era, of_era) = (year / 400, year % 400);
    let of_year = (153 * from_march + 2) / 5 + day - 1;
    let days = era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year;
    days.checked_sub(719_468)
}

fn number(text: &str, min: u32, max: u32) -> Option<u32> {
    let is_plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| is_plain)?;
    (min..=max).contains(&number).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-21 14:03:12.
    const NOW: u32 = 1_795_269_792;

    #[test]
    fn times_are_read_as_they_are_written() {
        for (word, expected) in [
            ("14:03", Ok(When::Minute(NOW - 12))),
            ("14:03:11", Ok(When::Second(NOW - 1))),
            ("14:04", Ok(When::Minute(NOW + 48 - DAY_S))),
            ("00:00", Ok(When::Minute(NOW - NOW % DAY_S))),
            ("2026-11-21T14:03", Ok(When::Minute(NOW - 12))),
            ("2026-11-20 14:03:12", Ok(When::Second(NOW - DAY_S))),
            ("2024-02-29T00:00:01Z", Ok(When::Second(1_709_164_801))),
            ("1795269000", Ok(When::Second(1_795_269_000))),
            ("2026-11-22T00:00", Err(WhenError::Future)),
            ("9999999999999", Err(WhenError::Syntax)),
            ("", Err(WhenError::Syntax)),
            ("24:00", Err(WhenError::Syntax)),
            ("14", Err(WhenError::Syntax)),
            ("14:03:12:01", Err(WhenError::Syntax)),
            ("+1:03", Err(WhenError::Syntax)),
            ("1969-12-31T23:59", Err(WhenError::Syntax)),
            ("2026-13-01T00:00", Err(WhenError::Syntax)),
            ("ä:ö", Err(WhenError::Syntax)),
        ] {
            assert_eq!(When::parse(word.as_bytes(), NOW), expected, "{word}");
        }
    }
}
