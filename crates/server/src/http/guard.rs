//! The requests that are looked at: those whose `Host` names this server, and that no page of another site made a
//! browser send.
//!
//! A page of another site can have a browser inside the network send requests here, and read the answers if it makes its own
//! name point to this address (DNS rebinding). The browser then sends the page's name as `Host`. So names are checked; an
//! address cannot be made to point elsewhere, and a name without a dot is resolved inside the network only.

use hyper::{
    HeaderMap, Request, StatusCode,
    header::{HOST, ORIGIN},
};

use crate::config::Config;

/// Why a request is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) status: StatusCode,
    /// For people, without an end of line.
    pub(super) reason: String,
}

impl Refused {
    pub(super) fn new(status: StatusCode, reason: impl Into<String>) -> Self {
        Self { status, reason: reason.into() }
    }
}

/// Checks that the request is meant for this server.
pub(super) fn check_host<B>(
    request: &Request<B>,
    config: &Config,
    own_name: Option<&str>,
) -> Result<(), Refused> {
    let given = host_of(request.headers())?;
    let host = without_port(given);
    if is_own(host, config, own_name) {
        return Ok(());
    }
    let reason = format!(
        "this server is not known as {}: add the name to http-hosts, or use an address",
        host.escape_debug()
    );
    Err(Refused::new(StatusCode::MISDIRECTED_REQUEST, reason))
}

/// The one `Host` of a request.
pub(super) fn host_of(headers: &HeaderMap) -> Result<&str, Refused> {
    let mut hosts = headers.get_all(HOST).iter();
    match (hosts.next().map(|host| host.to_str()), hosts.next()) {
        (Some(Ok(host)), None) if !host.is_empty() => Ok(host),
        _ => Err(Refused::new(StatusCode::BAD_REQUEST, "a request has one Host")),
    }
}

/// Checks that a page of this server has made the request: browsers say where a page that opens a WebSocket comes from, and
/// no page can say otherwise.
pub(super) fn check_origin<B>(request: &Request<B>) -> Result<(), Refused> {
    let host = host_of(request.headers())?;
    let origin = request.headers().get(ORIGIN).and_then(|origin| origin.to_str().ok());
    let own = origin.and_then(|origin| origin.split_once("://")).map(|(_, authority)| authority);
    match own.is_some_and(|own| own.eq_ignore_ascii_case(host)) {
        true => Ok(()),
        false => Err(Refused::new(StatusCode::FORBIDDEN, "only the console's own page may connect")),
    }
}

/// Refuses a request that brings a body.
pub(super) fn check_no_body<B: hyper::body::Body>(request: &Request<B>) -> Result<(), Refused> {
    match request.body().is_end_stream() {
        true => Ok(()),
        false => Err(Refused::new(StatusCode::PAYLOAD_TOO_LARGE, "no body is expected here")),
    }
}

fn without_port(host: &str) -> &str {
    if let Some(inner) = host.strip_prefix('[') {
        return inner.split(']').next().unwrap_or(inner);
    }
    host.split(':').next().unwrap_or(host)
}

fn is_own(host: &str, config: &Config, own_name: Option<&str>) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host);
    let named = || config.http_hosts.iter().map(String::as_str).chain(own_name);
    host.parse::<std::net::IpAddr>().is_ok()
        || !host.is_empty() && !host.contains('.')
        || host.to_ascii_lowercase().ends_with(".localhost")
        || named().any(|name| name.eq_ignore_ascii_case(host))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_is_an_address_or_a_name_of_this_server() {
        let config = Config { http_hosts: vec!["store.example.com".to_owned()], ..Config::default() };
        for (host, is_known) in [
            ("127.0.0.1", true),
            ("127.0.0.1:8080", true),
            ("[::1]:8080", true),
            ("[::1]", true),
            ("localhost:8080", true),
            ("a.localhost", true),
            ("dunlin", true),
            ("STORE.example.com:8080", true),
            ("store.example.com.", true),
            ("node-1.internal", true),
            ("evil.example.com", false),
            ("store.example.com.evil.net", false),
            ("127.0.0.1.evil.net", false),
            ("127.0.0.1@evil.net", false),
            (".", false),
            (":80", false),
        ] {
            let request = Request::builder().header(HOST, host).body(()).unwrap();
            let checked = check_host(&request, &config, Some("node-1.internal"));
            assert_eq!(checked.is_ok(), is_known, "{host}");
        }
    }

    #[test]
    fn origin_is_the_page_of_this_server() {
        for (origin, is_own) in [
            (Some("http://127.0.0.1:8080"), true),
            (Some("https://127.0.0.1:8080"), true),
            (Some("http://127.0.0.1:9090"), false),
            (Some("http://evil.example.com"), false),
            (Some("null"), false),
            (Some(""), false),
            (None, false),
        ] {
            let request = Request::builder().header(HOST, "127.0.0.1:8080");
            let request = origin.into_iter().fold(request, |request, origin| request.header(ORIGIN, origin));
            assert_eq!(check_origin(&request.body(()).unwrap()).is_ok(), is_own, "{origin:?}");
        }
    }

    #[test]
    fn request_needs_exactly_one_host() {
        let none = Request::builder().body(()).unwrap();
        let two = Request::builder().header(HOST, "localhost").header(HOST, "a").body(()).unwrap();
        for request in [none, two] {
            let refused = check_host(&request, &Config::default(), None).unwrap_err();
            assert_eq!(refused.status, StatusCode::BAD_REQUEST);
        }
    }
}
