//! Servers named by a URI.

use crate::target::{Address, Credentials, Target};

/// Reads `redis://[[user:]password@]host[:port][/database]`, `valkey://…` or `unix://path`.
pub fn parse(uri: &str) -> Result<Target, String> {
    let bad = |what: &str| format!("bad URI '{uri}': {what}");
    if let Some(path) = uri.strip_prefix("unix://") {
        return Ok(Target::new(Address::Unix(path.into())));
    }
    let Some(rest) = uri.strip_prefix("redis://").or_else(|| uri.strip_prefix("valkey://")) else {
        return Err(bad("it must start with redis://, valkey:// or unix:// (TLS is not supported here)"));
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

fn percent_decoded(text: &str) -> Option<String> {
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
        for bad in
            ["rediss://x", "http://x", "redis://x:port", "redis://x/db", "redis://[::1", "redis://%zz@x"]
        {
            assert!(parse(bad).is_err(), "{bad}");
        }
    }
}
