//! The places of the log's files.

use std::{fs, io};

use dunlin_persist::{aof::WriterOptions, manifest::Manifest};

use crate::{config::Config, persistence::files};

/// The places of the log's files by a configuration.
pub(crate) fn log_options(config: &Config) -> WriterOptions {
    WriterOptions {
        directory: config.dir.join(&config.appenddirname),
        filename: config.appendfilename.to_string_lossy().into_owned(),
        retained_bytes_max: config.repl_backlog_disk_size,
    }
}

/// The manifest, `None` if there is none.
pub(crate) fn read_manifest(options: &WriterOptions) -> Result<Option<Manifest>, String> {
    let path = options.manifest_path();
    if fs::metadata(&path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound) {
        return Ok(None);
    }
    files::read_manifest(&path)
        .map(|(manifest, _)| Some(manifest))
        .map_err(|reason| format!("the manifest {}: {reason}", path.display()))
}
