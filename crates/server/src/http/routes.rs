//! The answers by their paths.

use std::{
    io,
    sync::{Arc, Mutex, PoisonError},
};

use http_body_util::Full;
use hyper::{
    Method, Request, Response, StatusCode,
    body::{Bytes, Incoming},
    header::{
        ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderMap, HeaderName,
        HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
    },
};

use dunlin_engine::Survey;
use dunlin_net::Transport;
use tokio::net::UnixStream;

use super::{
    Ends, console,
    consoles::Consoles,
    guard::{self, Refused},
    health,
};
use crate::{
    info::Reading,
    metrics::{self, Format},
    shared::Shared,
    system::host::unix_us,
};

/// The body of an answer.
pub(super) type Body = Full<Bytes>;

/// The state that all connections share.
pub(super) struct Site {
    pub(super) shared: Arc<Shared>,
    /// The name of this machine.
    own_name: Option<String>,
    /// The last survey of the keyspace, for the time in which a script holds it.
    survey: Mutex<Survey>,
    pub(super) consoles: Arc<Consoles>,
}

impl Site {
    pub(super) fn new(shared: &Arc<Shared>) -> Self {
        let own_name = rustix::system::uname().nodename().to_str().ok().map(str::to_owned);
        Self { shared: Arc::clone(shared), own_name, survey: Mutex::default(), consoles: Arc::default() }
    }

    /// A connection to a worker, which sees a client at the browser's address.
    pub(super) fn new_client(&self, Ends { peer, local }: Ends) -> io::Result<UnixStream> {
        let queues = self.shared.durability.queues().ok_or_else(|| io::Error::other("the server starts"))?;
        let (own, other) = console::pair()?;
        queues.hand_over(other, Transport::Tcp { peer, local });
        Ok(own)
    }

    /// The keyspace as it is, or as it was when it was last looked at if a script holds it for long.
    fn survey(&self) -> Survey {
        let mut last = self.survey.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(survey) = self.shared.engine.survey_unless_long() {
            *last = survey;
        }
        last.clone()
    }
}

/// Answers a request.
pub(super) async fn respond(request: Request<Incoming>, site: &Site, ends: Ends) -> Response<Body> {
    let mut response = route(request, site, ends).unwrap_or_else(|refused| {
        let mut response = text(refused.status, refused.reason + "\n");
        if refused.status == StatusCode::METHOD_NOT_ALLOWED {
            response.headers_mut().insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
        }
        response
    });
    harden(response.headers_mut());
    response
}

fn route(request: Request<Incoming>, site: &Site, ends: Ends) -> Result<Response<Body>, Refused> {
    let path = request.uri().path();
    let config = site.shared.config.current();
    if path != "/health" {
        guard::check_host(&request, &config, site.own_name.as_deref())?;
    }
    let file = console::file(path).filter(|_| config.http_console);
    let is_connect = path == "/connect" && config.http_console;
    if !["/health", "/metrics"].contains(&path) && file.is_none() && !is_connect {
        return Err(Refused::new(StatusCode::NOT_FOUND, "there are /health, /metrics and the console at /"));
    }
    if ![Method::GET, Method::HEAD].contains(request.method()) {
        return Err(Refused::new(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD"));
    }
    guard::check_no_body(&request)?;
    Ok(match path {
        "/health" => {
            let (status, reason) = health::check(&site.shared);
            text(status, reason)
        }
        "/metrics" => metrics(&request, site),
        "/connect" => return console::connect(request, site, ends),
        _ => page(file.unwrap_or_default()),
    })
}

/// A file of the console.
fn page((content_type, content): (&'static str, &'static [u8])) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from_static(content)));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(console::POLICY));
    response
}

fn metrics(request: &Request<Incoming>, site: &Site) -> Response<Body> {
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let format = Format::accepted(accept);
    let config = site.shared.config.current();
    let reading = Reading::surveyed(&site.shared, &config, (unix_us() / 1000) as u64, site.survey());
    let mut response = text(StatusCode::OK, metrics::render(&reading, format));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(format.content_type()));
    response
}

pub(super) fn text(status: StatusCode, text: String) -> Response<Body> {
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, plain);
    response
}

/// Headers of every answer: nothing is kept, guessed, framed or embedded by other sites.
fn harden(headers: &mut HeaderMap) {
    const POLICY: HeaderName = HeaderName::from_static("cross-origin-resource-policy");
    for (name, value) in [
        (CACHE_CONTROL, "no-store"),
        (CONTENT_SECURITY_POLICY, "default-src 'none'; frame-ancestors 'none'"),
        (POLICY, "same-origin"),
        (REFERRER_POLICY, "no-referrer"),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
    ] {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
}
