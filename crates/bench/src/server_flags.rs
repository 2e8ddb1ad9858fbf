//! The flags that name a server, the same for `dunlin bench`, `record` and `replay`: redis-cli's, a URI, TLS.

use std::path::PathBuf;

use clap::Args;

use crate::target::{Address, Credentials, Target};
use crate::tls::TlsOptions;
use crate::uri;

/// The heading above these flags, which those behind them do not share.
const HEADING: &str = "Server";

/// Which server, and how to introduce oneself to it.
#[derive(Debug, Args)]
pub struct ServerFlags {
    /// Server's host name or address
    #[arg(help_heading = HEADING, short = 'h', value_name = "HOST", default_value = "127.0.0.1")]
    pub host: String,
    /// Server's port
    #[arg(help_heading = HEADING, short = 'p', value_name = "PORT", default_value_t = 6379)]
    pub port: u16,
    /// Server's Unix domain socket (instead of host and port)
    #[arg(help_heading = HEADING, short = 's', value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Server as a URI: redis[s]://[[USER:]PASSWORD@]HOST[:PORT][/DATABASE] or unix://PATH
    #[arg(help_heading = HEADING, short = 'u', long = "target", value_name = "URI", conflicts_with_all = ["host", "port", "socket"])]
    pub uri: Option<String>,
    /// Password for AUTH
    #[arg(help_heading = HEADING, short = 'a', value_name = "PASSWORD")]
    pub password: Option<String>,
    /// User for AUTH
    #[arg(help_heading = HEADING, long, value_name = "USER", requires = "password")]
    pub user: Option<String>,
    /// Speak TLS, trusting the certificates that the system trusts
    #[arg(help_heading = HEADING, long)]
    pub tls: bool,
    /// Trust the certificates in this file instead (implies --tls, as do the other flags of TLS)
    #[arg(help_heading = HEADING, long, value_name = "FILE")]
    pub cacert: Option<PathBuf>,
    /// The client's own certificate
    #[arg(help_heading = HEADING, long, value_name = "FILE", requires = "key")]
    pub cert: Option<PathBuf>,
    /// The key of the client's certificate
    #[arg(help_heading = HEADING, long, value_name = "FILE", requires = "cert")]
    pub key: Option<PathBuf>,
    /// Name that the server's certificate must have, when it is not the host's
    #[arg(help_heading = HEADING, long, value_name = "HOST")]
    pub sni: Option<String>,
    /// Trust any server (TLS)
    #[arg(help_heading = HEADING, long)]
    pub insecure: bool,
}

impl ServerFlags {
    /// The server that the flags name.
    pub fn target(&self) -> Result<Target, String> {
        let options = self.tls_options();
        let mut target = match (&self.uri, &self.socket) {
            (Some(uri), _) => uri::parse_with(uri, options)?,
            (None, Some(path)) if options.is_none() => Target::new(Address::Unix(path.clone())),
            (None, Some(_)) => return Err("there is no TLS over a Unix domain socket".into()),
            (None, None) => {
                let mut target = Target::new(Address::Tcp(self.host.clone(), self.port));
                target.tls = options.map(|options| options.configured(&self.host)).transpose()?;
                target
            }
        };
        if let Some(password) = &self.password {
            target.credentials =
                Some(Credentials { username: self.user.clone(), password: password.clone() });
        }
        Ok(target)
    }

    /// The flags about TLS; `None` where there is none of them.
    fn tls_options(&self) -> Option<TlsOptions> {
        let Self { cacert, cert, key, sni, insecure, .. } = self;
        let options = TlsOptions {
            cacert: cacert.clone(),
            cert: cert.clone(),
            key: key.clone(),
            sni: sni.clone(),
            insecure: *insecure,
        };
        (self.tls || options != TlsOptions::default()).then_some(options)
    }
}
