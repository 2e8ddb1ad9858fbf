//! Versions of the format: Redis's and, since they parted, Valkey's.

/// A version of the format. The two lines of versions give the same type numbers to different forms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Version {
    /// Redis: 1 to 15 (8.10). Valkey 8 and older write 11, too.
    Redis(u16),
    /// Valkey 9 and newer: from 80 on.
    Valkey(u16),
}

impl Version {
    /// The oldest version that is written: Redis 7.0 and newer read it.
    pub const OLDEST: Version = Version::Redis(10);
    /// The first that has producers of streams, which is read, and written if commands make the data set.
    pub(crate) const PRODUCERS: Version = Version::Redis(13);
    const REDIS_MAX: u16 = 15;
    const REDIS_WRITTEN_MAX: u16 = 15;
    const VALKEY_MIN: u16 = 80;
    const VALKEY_MAX: u16 = 81;

    /// A version from its number alone, as dumps have it. An unknown version is `None` or, if
    /// `relaxed`, taken for one that adds to those before it.
    pub fn from_number(number: u16, relaxed: bool) -> Option<Version> {
        match number {
            1..=Self::REDIS_MAX => Some(Version::Redis(number)),
            Self::VALKEY_MIN..=Self::VALKEY_MAX => Some(Version::Valkey(number)),
            1..Self::VALKEY_MIN if relaxed => Some(Version::Redis(number)),
            Self::VALKEY_MIN.. if relaxed => Some(Version::Valkey(number)),
            _ => None,
        }
    }

    /// The version of a file from its first nine bytes: `REDIS0011`, `VALKEY080`.
    pub fn from_magic(magic: &[u8; 9], relaxed: bool) -> Option<Version> {
        let (is_valkey, digits) = match magic {
            [b'R', b'E', b'D', b'I', b'S', digits @ ..] => (false, digits.as_slice()),
            [b'V', b'A', b'L', b'K', b'E', b'Y', digits @ ..] => (true, digits.as_slice()),
            _ => return None,
        };
        let number = digits.iter().try_fold(0, |number: u16, digit| {
            digit.is_ascii_digit().then(|| number * 10 + u16::from(digit - b'0'))
        });
        Self::from_number(number?, relaxed)
            .filter(|version| matches!(version, Version::Valkey(_)) == is_valkey)
    }

    /// The versions that are read, in words.
    pub fn known() -> String {
        let [redis, first, last] =
            [Self::Redis(Self::REDIS_MAX), Self::Valkey(Self::VALKEY_MIN), Self::Valkey(Self::VALKEY_MAX)]
                .map(|version| String::from_utf8_lossy(&version.magic()).into_owned());
        format!("REDIS0001 to {redis}, {first} to {last}")
    }

    /// A version by the number that a user gives, of those that can be written: 9 for Redis 5 to 6.2, 10 for 7.0, 11 for
    /// 7.2 (and Valkey up to 8), 12 for Redis 7.4 to 8.4, 13 for 8.6, 14 for 8.8, 15 for 8.10, 80 for Valkey 9.
    pub fn writable(number: u16) -> Option<Version> {
        match number {
            9..=Self::REDIS_WRITTEN_MAX => Some(Version::Redis(number)),
            Self::VALKEY_MIN => Some(Version::Valkey(number)),
            _ => None,
        }
    }

    /// Whether servers that load this version know listpacks as hashes, lists and sorted sets, and functions; before,
    /// there are ziplists.
    pub fn has_listpacks(self) -> bool {
        self.number() >= Self::OLDEST.number()
    }

    /// The number.
    pub fn number(self) -> u16 {
        match self {
            Version::Redis(number) | Version::Valkey(number) => number,
        }
    }

    /// The newer one of two versions.
    pub fn newer(self, other: Version) -> Version {
        if other.number() > self.number() { other } else { self }
    }

    /// The first nine bytes of a file.
    pub fn magic(self) -> [u8; 9] {
        let text = match self {
            Version::Redis(number) => format!("REDIS{number:04}"),
            Version::Valkey(number) => format!("VALKEY{number:03}"),
        };
        text.as_bytes().try_into().expect("numbers have three digits at most")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn magic_words_name_versions() {
        for (magic, version) in [
            (b"REDIS0001", Some(Version::Redis(1))),
            (b"REDIS0015", Some(Version::Redis(15))),
            (b"VALKEY080", Some(Version::Valkey(80))),
            (b"REDIS0016", None),
            (b"REDIS0080", None),
            (b"REDIS0000", None),
            (b"VALKEY011", None),
            (b"VALKEY999", None),
            (b"REDIS00 1", None),
            (b"RADIS0001", None),
        ] {
            assert_eq!(Version::from_magic(magic, false), version);
            assert!(version.is_none_or(|version| version.magic() == *magic));
        }
    }

    #[test]
    fn relaxed_version_check_takes_future_versions() {
        for (magic, version) in [
            (b"REDIS0016", Some(Version::Redis(16))),
            (b"VALKEY999", Some(Version::Valkey(999))),
            (b"REDIS0000", None),
            (b"REDIS0080", None),
            (b"VALKEY079", None),
        ] {
            assert_eq!(Version::from_magic(magic, true), version);
        }
    }
}
