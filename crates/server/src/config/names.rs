//! Names and addresses that a server announces: they stand in lines and lists that others take apart.

/// Bytes of a name at most.
const NAME_BYTES_MAX: usize = 255;

/// The refusal of an address.
pub(crate) const NO_HOST: &str =
    "an address or a host name may only contain letters, digits and '.', ':', '-', '_', '%'";

fn is_of(name: &str, others: &[u8]) -> bool {
    let is_fine = |byte: u8| byte.is_ascii_alphanumeric() || others.contains(&byte);
    name.len() <= NAME_BYTES_MAX && name.bytes().all(is_fine)
}

/// Whether this may be a host's name, as Redis has it; an empty one is none.
pub(crate) fn is_hostname(name: &str) -> bool {
    is_of(name, b"-.")
}

/// Whether this may be a node's name for people, as Redis has it; an empty one is none.
pub(crate) fn is_label(name: &str) -> bool {
    is_of(name, b"-._:@!#$%&*+/;<>?[]^{|}~")
}

/// Whether this may be an address or a name of a host, or is empty.
pub(crate) fn is_host(name: &str) -> bool {
    is_of(name, b".:-_%")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_announced_have_no_separators() {
        for (name, hostname, host) in [
            ("", true, true),
            ("db-1.example.com", true, true),
            ("10.0.0.1", true, true),
            ("fe80::1%eth0", false, true),
            ("redis_1", false, true),
            ("bad host,x", false, false),
            ("10.0.0.1 x", false, false),
            ("a b,port=1", false, false),
            ("a\r\nb", false, false),
            ("a@b", false, false),
            ("ä", false, false),
        ] {
            assert_eq!((is_hostname(name), is_host(name)), (hostname, host), "{name:?}");
        }
        assert!(!is_host(&"a".repeat(256)));
        for name in ["a b", "a,b", "a=b", "a\nb", "\"a\""] {
            assert!(!is_label(name), "{name:?}");
        }
        assert!(is_label("node_1!"));
    }
}
