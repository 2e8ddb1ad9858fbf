//! `tls-protocols`, `tls-ciphers` and `tls-ciphersuites`, in OpenSSL's spelling, as what rustls has.
//!
//! rustls has the suites that are considered safe: ECDHE with AES-GCM or ChaCha20-Poly1305. Names of these choose them;
//! names of weaker ones can be excluded, which changes nothing, and not chosen.

use rustls::crypto::{CryptoProvider, ring};
use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion, version};

/// The suites of TLS 1.2, in OpenSSL's names.
const NAMES_OF_12: &[(&str, CipherSuite)] = &[
    ("ECDHE-ECDSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-ECDSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-ECDSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256),
    ("ECDHE-RSA-AES256-GCM-SHA384", CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384),
    ("ECDHE-RSA-AES128-GCM-SHA256", CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256),
    ("ECDHE-RSA-CHACHA20-POLY1305", CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256),
];

/// The suites of TLS 1.3.
const NAMES_OF_13: &[(&str, CipherSuite)] = &[
    ("TLS_AES_256_GCM_SHA384", CipherSuite::TLS13_AES_256_GCM_SHA384),
    ("TLS_AES_128_GCM_SHA256", CipherSuite::TLS13_AES_128_GCM_SHA256),
    ("TLS_CHACHA20_POLY1305_SHA256", CipherSuite::TLS13_CHACHA20_POLY1305_SHA256),
];

/// Classes of OpenSSL that hold only suites which rustls lacks: excluding them changes nothing.
const ABSENT: &[&str] = &[
    "3DES",
    "ADH",
    "AECDH",
    "ARIA",
    "CAMELLIA",
    "CBC",
    "COMPLEMENTOFALL",
    "COMPLEMENTOFDEFAULT",
    "DES",
    "DH",
    "DHE",
    "DSS",
    "EDH",
    "EXP",
    "EXPORT",
    "IDEA",
    "KRSA",
    "LOW",
    "MD5",
    "MEDIUM",
    "NULL",
    "PSK",
    "RC2",
    "RC4",
    "RSA-PSK",
    "SEED",
    "SHA",
    "SHA1",
    "SRP",
    "SSLV2",
    "SSLV3",
    "TLSV1",
    "ANULL",
    "ADSS",
    "ENULL",
    "AESCCM",
    "AESCCM8",
    "KDHE",
    "KPSK",
];

/// `tls-protocols`: words, or none for all that there are.
pub(super) fn protocols(text: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let mut versions: Vec<&'static SupportedProtocolVersion> = Vec::new();
    for word in text.split_ascii_whitespace() {
        let chosen = match word.to_ascii_lowercase().as_str() {
            "tlsv1.2" => &version::TLS12,
            "tlsv1.3" => &version::TLS13,
            "tlsv1" | "tlsv1.1" => {
                return Err(format!(
                    "tls-protocols: {word} is broken and not available; use TLSv1.2 and TLSv1.3"
                ));
            }
            _ => return Err(format!("tls-protocols: '{word}' is unknown; use TLSv1.2 and TLSv1.3")),
        };
        if !versions.contains(&chosen) {
            versions.push(chosen);
        }
    }
    if versions.is_empty() {
        versions = vec![&version::TLS13, &version::TLS12];
    }
    Ok(versions)
}

/// A provider with the suites that `tls-ciphers` and `tls-ciphersuites` choose, in their order.
pub(super) fn provider(ciphers: &str, ciphersuites: &str) -> Result<CryptoProvider, String> {
    let all = ring::default_provider();
    let of_13 = listed("tls-ciphersuites", ciphersuites, NAMES_OF_13, &all)?;
    let of_12 = listed("tls-ciphers", ciphers, NAMES_OF_12, &all)?;
    Ok(CryptoProvider { cipher_suites: [of_13, of_12].concat(), ..all })
}

/// The suites of a list in OpenSSL's form, in its order. Empty: all.
fn listed(
    directive: &str,
    text: &str,
    names: &[(&str, CipherSuite)],
    provider: &CryptoProvider,
) -> Result<Vec<SupportedCipherSuite>, String> {
    let found =
        |wanted: CipherSuite| provider.cipher_suites.iter().find(|suite| suite.suite() == wanted).copied();
    let all = || names.iter().filter_map(|(_, suite)| found(*suite));
    let (mut chosen, mut excluded) = (Vec::new(), Vec::new());
    let is_separator = |letter: char| letter == ':' || letter == ',' || letter.is_ascii_whitespace();
    let words: Vec<&str> = text.split(is_separator).filter(|word| !word.is_empty()).collect();
    for word in &words {
        let (is_excluded, name) = match word.strip_prefix(['!', '-']) {
            Some(name) => (true, name),
            None => (false, word.strip_prefix('+').unwrap_or(word)),
        };
        let upper = name.to_ascii_uppercase();
        if upper.starts_with('@') {
            // Levels of security and orders by strength: all that there is meets them.
            continue;
        }
        let meant: Vec<SupportedCipherSuite> = match upper.as_str() {
            "DEFAULT" | "ALL" | "HIGH" | "ECDHE" | "EECDH" | "KECDHE" | "KEECDH" | "TLSV1.2" | "AEAD" => {
                all().collect()
            }
            _ => {
                let parts: Vec<&str> = upper.split('+').collect();
                let is_class = |part: &&str| class(part).is_some();
                if let Some((_, suite)) = names.iter().find(|(known, _)| *known == upper) {
                    found(*suite).into_iter().collect()
                } else if parts.iter().all(is_class) {
                    let is_of =
                        |suite: &str| parts.iter().all(|part| class(part).is_some_and(|of| of(suite)));
                    names
                        .iter()
                        .filter(|(known, _)| is_of(known))
                        .filter_map(|(_, suite)| found(*suite))
                        .collect()
                } else if is_excluded && ABSENT.contains(&upper.as_str()) {
                    Vec::new()
                } else {
                    let known: Vec<&str> = names.iter().map(|(known, _)| *known).collect();
                    return Err(format!(
                        "{directive}: '{word}' is not available; there are {}",
                        known.join(", ")
                    ));
                }
            }
        };
        let list = if is_excluded { &mut excluded } else { &mut chosen };
        for suite in meant {
            if !list.contains(&suite) {
                list.push(suite);
            }
        }
    }
    if chosen.is_empty() {
        chosen = all().collect();
    }
    chosen.retain(|suite| !excluded.contains(suite));
    if chosen.is_empty() {
        return Err(format!("{directive}: '{text}' leaves no cipher suite"));
    }
    Ok(chosen)
}

/// Whether a suite, by its name, is of a class of OpenSSL's.
fn class(name: &str) -> Option<fn(&str) -> bool> {
    Some(match name {
        "ECDHE" | "EECDH" | "KECDHE" | "KEECDH" | "AEAD" | "TLSV1.2" => |_| true,
        "ECDSA" | "AECDSA" => |suite| suite.contains("ECDSA"),
        "RSA" | "ARSA" => |suite| suite.contains("-RSA-"),
        "AES" => |suite| suite.contains("AES"),
        "AESGCM" => |suite| suite.contains("GCM"),
        "AES128" => |suite| suite.contains("AES128"),
        "AES256" => |suite| suite.contains("AES256"),
        "CHACHA20" => |suite| suite.contains("CHACHA20"),
        "SHA256" => |suite| suite.ends_with("SHA256"),
        "SHA384" => |suite| suite.ends_with("SHA384"),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(ciphers: &str, ciphersuites: &str) -> Result<Vec<String>, String> {
        let provider = provider(ciphers, ciphersuites)?;
        Ok(provider.cipher_suites.iter().map(|suite| format!("{:?}", suite.suite())).collect())
    }

    #[test]
    fn tls_ciphers_are_read_as_openssl_spells_them() {
        assert_eq!(names("", "").unwrap().len(), 9);
        assert_eq!(names("DEFAULT:!MEDIUM", "").unwrap().len(), 9);
        assert_eq!(
            names("ECDHE-RSA-AES128-GCM-SHA256:ECDHE-RSA-AES256-GCM-SHA384", "TLS_CHACHA20_POLY1305_SHA256")
                .unwrap(),
            [
                "TLS13_CHACHA20_POLY1305_SHA256",
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384"
            ]
        );
        assert_eq!(names("ECDHE+AESGCM:!ECDSA", "").unwrap().len(), 5);
        assert_eq!(names("HIGH:!CHACHA20:!aNULL:@SECLEVEL=2", "").unwrap().len(), 7);
    }

    #[test]
    fn tls_ciphers_that_are_not_there_are_named() {
        for (ciphers, suites, expected) in [
            (
                "AES128-SHA",
                "",
                "tls-ciphers: 'AES128-SHA' is not available; there are ECDHE-ECDSA-AES256-GCM-SHA384, ",
            ),
            ("RC4", "", "tls-ciphers: 'RC4' is not available"),
            ("!ECDHE", "", "tls-ciphers: '!ECDHE' leaves no cipher suite"),
            ("", "TLS_AES_128_CCM_SHA256", "tls-ciphersuites: 'TLS_AES_128_CCM_SHA256' is not available"),
        ] {
            let error = names(ciphers, suites).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }

    #[test]
    fn tls_protocols_that_are_broken_are_refused() {
        assert_eq!(protocols("").unwrap().len(), 2);
        assert_eq!(protocols("tlsv1.3 TLSv1.3").unwrap(), [&version::TLS13]);
        assert!(protocols("TLSv1.1 TLSv1.2").unwrap_err().contains("TLSv1.1 is broken"));
        assert!(protocols("SSLv3").unwrap_err().contains("'SSLv3' is unknown"));
    }
}
