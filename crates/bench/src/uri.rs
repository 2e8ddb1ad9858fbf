//! Servers named by a URI.

use crate::target::{Address, Credentials, Target};
use crate::tls::TlsOptions;

/// Reads `redis://[[user:]password@]host[:port][/database]`, the same with `rediss://` for TLS, or `unix://path`;
/// `valkey://` and `valkeys://` are other names. Behind a `?`, what [`TlsOptions`] has can be given:
/// `rediss://host?cacert=FILE&cert=FILE&key=FILE&sni=NAME&insecure=true`.
#[cfg(any(feature = "compare", test))]
pub fn parse(uri: &str) -> Result<Target, String> {
    parse_with(uri, None)
}

/// Does what [`parse`] does, with TLS even if the URI does not ask for it when there are `options`; the URI's
/// own options come before them.
pub fn parse_with(uri: &str, options: Option<TlsOptions>) -> Result<Target, String> {
    let bad = |what: &str| format!("bad URI '{uri}': {what}");
    if let Some(path) = uri.strip_prefix("unix://") {
        return match options {
            None => Ok(Target::new(Address::Unix(path.into()))),
            Some(_) => Err(bad("there is no TLS over a Unix domain socket")),
        };
    }
    let (scheme, rest) = uri.split_once("://").unwrap_or(("", uri));
    let options = match scheme {
        "redis" | "valkey" => options,
        "rediss" | "valkeys" => Some(options.unwrap_or_default()),
        _ => return Err(bad("it must start with redis://, rediss://, valkey://, valkeys:// or unix://")),
    };
    let (rest, query) = rest.split_once('?').map_or((rest, None), |(rest, query)| (rest, Some(query)));
    let options = match (options, query) {
        (None, Some(_)) => return Err(bad("options behind '?' are about TLS: it must start with rediss://")),
        (Some(mut options), Some(query)) => {
            read_options(query, &mut options).map_err(|what| bad(&what))?;
            Some(options)
        }
        (options, None) => options,
    };
    let (authority, database) = rest.split_once('/').unwrap_or((rest, ""));
    let (user_info, host_port) = authority.rsplit_once('@').map_or((None, authority), |(u, h)| (Some(u), h));
    let (host, port) = match host_port.strip_prefix('[') {
        Some(rest) => {
            let (host, port) = rest.split_once(']').ok_or_else(|| bad("']' is missing"))?;
            (host, port.strip_prefix(':'))
        }
        None => host_port.split_once(':').map_or((host_port, None), |(host, port)| (host, Some(port))),
    };
    let port = port.map_or(Ok(6379), |port| port.parse().map_err(|_| bad("the port is not a number")))?;
    let host = if host.is_empty() { "127.0.0.1" } else { host };
    let mut target = Target::new(Address::Tcp(host.into(), port));
    target.tls = options.map(|options| options.configured(host)).transpose().map_err(|what| bad(&what))?;
    if !database.is_empty() {
        target.database = database.parse().map_err(|_| bad("the database is not a number"))?;
    }
    if let Some(user_info) = user_info {
        let decode = |text: &str| percent_decoded(text).ok_or_else(|| bad("bad percent-encoding"));
        let (username, password) = match user_info.split_once(':') {
            Some(("", password)) => (None, password),
            Some((username, password)) => (Some(decode(username)?), password),
            None => (None, user_info),
        };
        target.credentials = Some(Credentials { username, password: decode(password)? });
    }
    Ok(target)
}

/// Reads `name=value&…`.
fn read_options(query: &str, options: &mut TlsOptions) -> Result<(), String> {
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, "true"));
        let value = percent_decoded(value).ok_or("bad percent-encoding")?;
        match (name, value.as_str()) {
            ("cacert", _) => options.cacert = Some(value.into()),
            ("cert", _) => options.cert = Some(value.into()),
            ("key", _) => options.key = Some(value.into()),
            ("sni", _) => options.sni = Some(value),
            ("insecure", "true" | "1") => options.insecure = true,
            ("insecure", "false" | "0") => options.insecure = false,
            _ => {
                return Err(format!(
                    "there is no option {pair}; there are cacert, cert, key, sni and insecure=true"
                ));
            }
        }
    }
    Ok(())
}

/// A text with `%2F` and its like as the bytes that they stand for; nothing if they stand for none.
pub fn percent_decoded(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        if *first == b'%' {
            let digits = std::str::from_utf8(tail.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
            rest = tail;
        }
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn uris_name_servers() {
        let target = parse("redis://ann:p%40ss@[::1]:7000/3").unwrap();
        assert_eq!(target.address, Address::Tcp("::1".into(), 7000));
        assert_eq!(
            target.credentials,
            Some(Credentials { username: Some("ann".into()), password: "p@ss".into() })
        );
        assert_eq!(target.database, 3);
        let plain = parse("redis://secret@db").unwrap();
        assert_eq!(plain.address, Address::Tcp("db".into(), 6379));
        assert_eq!(plain.credentials, Some(Credentials { username: None, password: "secret".into() }));
        assert_eq!(parse("unix:///tmp/s").unwrap().address, Address::Unix("/tmp/s".into()));
        for bad in [
            "http://x",
            "redis://x?insecure",
            "redis://x:port",
            "redis://x/db",
            "redis://[::1",
            "redis://%zz@x",
        ] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }

    #[cfg(feature = "tls")]
    #[test]
    fn tls_is_asked_for_by_name_or_by_flags() {
        let configured = |options: TlsOptions| options.configured("db").ok();
        let insecure = TlsOptions { insecure: true, ..TlsOptions::default() };
        let target = parse("rediss://db:7000/3?insecure").unwrap();
        assert_eq!((target.database, target.tls), (3, configured(insecure.clone())));
        let sni = TlsOptions { sni: Some("a b.c".replace(' ', "-")), ..insecure.clone() };
        let named = parse("valkeys://db?sni=a%2db.c&insecure=1").unwrap();
        assert_eq!(named.tls, configured(sni));
        let flagged = parse_with("redis://db", Some(insecure.clone())).unwrap();
        assert_eq!(flagged.tls, configured(insecure.clone()));
        assert!(parse_with("unix:///tmp/s", Some(insecure)).is_err());
        for bad in ["rediss://db?secure", "rediss://db?insecure=maybe", "rediss://db?cacert=/no/such.pem"] {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
