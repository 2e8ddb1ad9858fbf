//! `etcd://HOST[:PORT][,HOST…]/NAME`: the endpoints of etcd, and the cluster's name. `etcds://` is the same inside TLS.

use std::fmt;

/// etcd's port for clients.
const PORT: u16 = 2379;
/// Endpoints at most.
const ENDPOINTS_MAX: usize = 16;

/// Why a text names no cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UrlError {
    /// The address begins with neither `etcd://` nor `etcds://`.
    Scheme,
    /// The name behind the hosts is missing.
    Name,
    /// A host is empty, or has characters that no host has.
    Host,
    /// A port is not a number from 1 to 65535.
    Port,
    /// The address has a user or a password, which every user of the machine could read.
    User,
    /// The address has too many hosts.
    TooMany,
}

impl fmt::Display for UrlError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Scheme => out.write_str(
                "the address of a cluster is etcd://HOST[:PORT][,HOST...]/NAME, or etcds:// for TLS",
            ),
            Self::Name => {
                out.write_str("the name of the cluster is missing behind the hosts: etcd://HOST/NAME")
            }
            Self::Host => out.write_str("a host of etcd is empty or malformed"),
            Self::Port => out.write_str("a port of etcd is a number from 1 to 65535"),
            Self::User => out.write_str("user and password of etcd do not belong into its address"),
            Self::TooMany => write!(out, "at most {ENDPOINTS_MAX} hosts of etcd"),
        }
    }
}

impl std::error::Error for UrlError {}

/// Returns the endpoints and the name. IPv6 addresses stand in brackets, as everywhere.
pub fn parse_url(url: &str) -> Result<(Vec<String>, String), UrlError> {
    let (scheme, rest) = match url.split_once("://") {
        Some(("etcd", rest)) => ("http", rest),
        Some(("etcds", rest)) => ("https", rest),
        _ => return Err(UrlError::Scheme),
    };
    let (hosts, name) = rest.split_once('/').ok_or(UrlError::Name)?;
    if name.is_empty() {
        return Err(UrlError::Name);
    }
    if hosts.contains('@') {
        return Err(UrlError::User);
    }
    if hosts.split(',').count() > ENDPOINTS_MAX {
        return Err(UrlError::TooMany);
    }
    let endpoints = hosts.split(',').map(|host| {
        let (name, port) = match host.rsplit_once(':') {
            // The last colon of `[::1]` is none before a port.
            Some((name, port)) if !port.ends_with(']') => (name, port.parse().map_err(|_| UrlError::Port)?),
            _ => (host, PORT),
        };
        let inner = name.strip_prefix('[').and_then(|name| name.strip_suffix(']'));
        let is_plain = match inner {
            Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
            None => name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte)),
        };
        match (name.is_empty() || !is_plain, port) {
            (true, _) => Err(UrlError::Host),
            (_, 0) => Err(UrlError::Port),
            _ => Ok(format!("{scheme}://{name}:{port}")),
        }
    });
    Ok((endpoints.collect::<Result<_, _>>()?, name.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn url_names_endpoints_and_a_cluster() {
        for (url, endpoints) in [
            ("etcd://localhost/c", &["http://localhost:2379"][..]),
            ("etcds://a.b:1,10.0.0.1/c", &["https://a.b:1", "https://10.0.0.1:2379"]),
            ("etcd://[::1],[fe80::2]:99/c", &["http://[::1]:2379", "http://[fe80::2]:99"]),
        ] {
            let endpoints = endpoints.iter().map(|endpoint| (*endpoint).to_owned()).collect();
            assert_eq!(parse_url(url), Ok((endpoints, "c".to_owned())), "{url}");
        }
    }

    #[test]
    fn url_that_is_wrong_is_refused() {
        for (url, error) in [
            ("", UrlError::Scheme),
            ("http://a/c", UrlError::Scheme),
            ("etcd://a", UrlError::Name),
            ("etcd://a/", UrlError::Name),
            ("etcd:///c", UrlError::Host),
            ("etcd://a,,b/c", UrlError::Host),
            ("etcd://a b/c", UrlError::Host),
            ("etcd://::1/c", UrlError::Host),
            ("etcd://[x]/c", UrlError::Host),
            ("etcd://a:0/c", UrlError::Port),
            ("etcd://a:70000/c", UrlError::Port),
            ("etcd://u:p@a/c", UrlError::User),
        ] {
            assert_eq!(parse_url(url), Err(error), "{url}");
        }
        assert_eq!(parse_url(&format!("etcd://{}/c", ["a"; 17].join(","))), Err(UrlError::TooMany));
    }
}
