//! The course of a run: a figure of each slice of time, with the stretch of a compaction.

use std::time::Duration;

use super::{Band, Curve, Plot};
use crate::latency::Latencies;

/// When compaction began and ended, from the start of the load.
pub type Stretch = (Duration, Duration);

/// The latencies of the slices that lie wholly before, at least partly in, and wholly behind a stretch.
pub fn stretches(
    slices: &[Latencies],
    slice: Duration,
    (begun, ended): Stretch,
) -> [(&'static str, Vec<&Latencies>); 3] {
    let mut parts = [("before", Vec::new()), ("during compaction", Vec::new()), ("after", Vec::new())];
    for (index, latencies) in slices.iter().enumerate() {
        let (from, to) = (slice * index as u32, slice * (index as u32 + 1));
        let part = if to <= begun {
            0
        } else if from < ended {
            1
        } else {
            2
        };
        parts[part].1.push(latencies);
    }
    parts
}

/// A figure of each slice over the time; the stretches of compaction are shaded.
pub fn plot_course(
    title: &str,
    unit: &str,
    slice: Duration,
    runs: &[(String, Vec<Latencies>, Stretch)],
    figure: impl Fn(&Latencies) -> f64,
) -> Plot {
    let slice_s = slice.as_secs_f64();
    let curve = |(name, slices, _): &(String, Vec<Latencies>, Stretch)| Curve {
        server: name.clone(),
        spreads: Vec::new(),
        points: (slices.iter().enumerate())
            .map(|(index, slice)| ((index as f64 + 0.5) * slice_s, figure(slice)))
            .collect(),
    };
    let band = |(name, slices, (begun, ended)): &(String, Vec<Latencies>, Stretch)| Band {
        label: format!("{name} compacts"),
        from: begun.as_secs_f64(),
        to: ended.as_secs_f64().min(slice_s * slices.len() as f64),
    };
    Plot::Curves {
        title: title.into(),
        x_axis: "seconds".into(),
        y_axis: unit.into(),
        is_logarithmic: false,
        curves: runs.iter().map(curve).collect(),
        bands: runs.iter().map(band).collect(),
    }
}
