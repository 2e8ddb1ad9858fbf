//! Any bytes as a manifest: it is refused, or its contents can be written and read again.

#![no_main]

use dunlin_persist::manifest::Manifest;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(manifest) = Manifest::parse(data) else { return };
    // A line that was quoted otherwise may become too long.
    let Ok(again) = Manifest::parse(&manifest.encode()) else { return };
    assert_eq!(manifest, again);
});
