//! Who may do what: the one place that knows users.
//!
//! There is one user, `default`, whose password is `requirepass`; without a password everybody is
//! `default` from the start.

use sha2::{Digest, Sha256};

use crate::config::Config;

/// Who everybody is.
pub(crate) const DEFAULT_USER: &[u8] = b"default";

/// Whether clients are let in without saying who they are.
pub(crate) fn is_open(config: &Config) -> bool {
    config.requirepass.is_empty()
}

/// Whether there is a user of this name.
pub(crate) fn user_exists(user: &[u8]) -> bool {
    user == DEFAULT_USER
}

/// Whether this is a user's password; any password is, of a user without one.
pub(crate) fn is_password_of(config: &Config, user: &[u8], password: &[u8]) -> bool {
    user_exists(user) && (is_open(config) || is_same(password, config.requirepass.bytes()))
}

/// Compares two secrets. The time it takes tells how long the offered one is, nothing of the other.
fn is_same(offered: &[u8], secret: &[u8]) -> bool {
    let (offered, secret) = (Sha256::digest(offered), Sha256::digest(secret));
    let difference = offered.iter().zip(&secret).fold(0, |difference, (one, other)| {
        // Hidden from the optimizer, which could leave at the first difference.
        std::hint::black_box(difference | (one ^ other))
    });
    difference == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_user_has_the_configured_password() {
        let mut config = Config::default();
        assert!(is_open(&config));
        assert!(is_password_of(&config, b"default", b"anything"));
        assert!(!is_password_of(&config, b"nobody", b"anything"));
        crate::config::find(b"requirepass").unwrap().assign_argument(b"sesame", &mut config).unwrap();
        assert!(!is_open(&config));
        for (user, password, expected) in [
            ("default", "sesame", true),
            ("default", "", false),
            ("default", "Sesame", false),
            ("default", "sesame ", false),
            ("Default", "sesame", false),
            ("", "sesame", false),
        ] {
            let known = is_password_of(&config, user.as_bytes(), password.as_bytes());
            assert_eq!(known, expected, "{user} {password}");
        }
    }
}
