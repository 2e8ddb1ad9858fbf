//! The figures of a sample: one row each, from which merging, the file, `RECORDER RANGE` and its help derive.

/// How the figures of several seconds become one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Merge {
    /// Counts add up.
    Sum,
    /// The largest counts.
    Max,
    /// The average, rounded.
    Mean,
    /// The newest counts.
    Last,
    /// The one of the second in which this other figure was largest.
    With(Field),
}

macro_rules! fields {
    ($($variant:ident, $name:literal, $merge:expr, $meaning:literal;)*) => {
        /// A figure of a sample.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        #[repr(usize)]
        pub(crate) enum Field {
            $(#[doc = $meaning] $variant,)*
        }

        /// All figures, by their places in a sample: name, how they are merged, and their meaning.
        pub(crate) const FIELDS: &[(Field, &str, Merge, &str)] = &[
            $((Field::$variant, $name, $merge, $meaning),)*
        ];
    };
}

fields! {
    Seconds, "seconds", Merge::Sum, "Seconds that were sampled, by which counts are divided to give rates.";
    Commands, "commands", Merge::Sum, "Commands executed for clients, without those that scripts called.";
    Calls, "calls", Merge::Sum, "Commands that scripts called.";
    Errors, "errors", Merge::Sum, "Commands that were refused or failed.";
    P50, "p50", Merge::Mean, "Median latency of the commands, in tenths of a microsecond.";
    P99, "p99", Merge::Max, "Their 99th percentile, in tenths of a microsecond.";
    P999, "p999", Merge::Max, "Their 99.9th percentile, in tenths of a microsecond.";
    Worst, "worst", Merge::Max, "The longest that a command ran, in tenths of a microsecond.";
    WorstCommand, "worst_command", Merge::With(Field::Worst), "Which command that was, by its number.";
    BusyTime, "busy_time", Merge::Sum, "Time that all commands ran, in tenths of a microsecond.";
    TopTime, "top_time", Merge::Max, "Time of the command that ran longest in all, in tenths of a microsecond.";
    TopCommand, "top_command", Merge::With(Field::TopTime), "Which command that was, by its number.";
    TopCalls, "top_calls", Merge::With(Field::TopTime), "How often it ran.";
    SlowCommands, "slow_commands", Merge::Sum, "New entries of the slow log.";
    Clients, "clients", Merge::Max, "Connections of clients.";
    Blocked, "blocked", Merge::Max, "Clients that wait in a blocking command.";
    Connected, "connections", Merge::Sum, "Connections accepted.";
    Rejected, "rejected", Merge::Sum, "Connections refused.";
    Denied, "denied", Merge::Sum, "Requests and passwords that the access rules refused.";
    InputKb, "input_kb", Merge::Sum, "KiB read from clients.";
    OutputKb, "output_kb", Merge::Sum, "KiB sent to clients.";
    BuffersKb, "buffers_kb", Merge::Max, "KiB of clients' buffers.";
    UsedKb, "used_kb", Merge::Max, "KiB of memory in use, which `maxmemory` limits.";
    ResidentKb, "resident_kb", Merge::Max, "KiB of resident memory.";
    Keys, "keys", Merge::Last, "Keys of all databases.";
    Evicted, "evicted", Merge::Sum, "Keys evicted.";
    Expired, "expired", Merge::Sum, "Keys expired.";
    Hits, "hits", Merge::Sum, "Reads that found their key.";
    Misses, "misses", Merge::Sum, "Reads that found no key.";
    Processor, "processor", Merge::Mean, "Processor time of the process, in thousandths of one core.";
    BusiestWorker, "busiest_worker", Merge::Max, "Processor time of the busiest worker, in thousandths of a core.";
    Idle, "idle", Merge::Mean, "Idle time of the machine, in thousandths of all its cores.";
    LogBufferKb, "log_buffer_kb", Merge::Max, "KiB of the log that are not durable yet.";
    Syncs, "syncs", Merge::Sum, "Syncs of the log that ended.";
    SyncWorst, "sync_worst", Merge::Max, "The longest of them, or of the one under way, in tenths of a microsecond.";
    Snapshot, "snapshot", Merge::Max, "1 while a snapshot is written.";
    Rewrite, "rewrite", Merge::Max, "1 while the log is rewritten.";
    Loading, "loading", Merge::Max, "1 while a data set is loaded.";
    Held, "held", Merge::Max, "1 while a script or a command holds keys for long.";
    Replicas, "replicas", Merge::Last, "Replicas that have a link.";
    ReplicaLagKb, "replica_lag_kb", Merge::Max, "KiB that the slowest replica is behind.";
    LinkDown, "link_down", Merge::Max, "1 on a replica while its primary's stream does not come.";
    HotKeyShare, "hot_key_share", Merge::Max, "Share of the commands on keys that named the same key, in thousandths; 0 where there were few.";
    Unwritable, "unwritable", Merge::Max, "1 while the log cannot be written.";
}

/// How many figures a sample has.
pub(crate) const FIELD_COUNT: usize = FIELDS.len();

/// No command.
pub(crate) const NO_COMMAND: u32 = u32::MAX;

/// The figures of a stretch of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample {
    /// When it began, in seconds since 1970; 0 if there is no sample.
    pub(crate) time_s: u32,
    values: [u32; FIELD_COUNT],
}

impl Default for Sample {
    fn default() -> Self {
        let mut values = [0; FIELD_COUNT];
        values[Field::WorstCommand as usize] = NO_COMMAND;
        values[Field::TopCommand as usize] = NO_COMMAND;
        values[Field::Seconds as usize] = 1;
        Self { time_s: 0, values }
    }
}

impl Sample {
    pub(crate) fn new(time_s: u32) -> Self {
        Self { time_s, ..Self::default() }
    }

    /// A sample as a file has it.
    pub(super) fn from_parts(time_s: u32, values: [u32; FIELD_COUNT]) -> Self {
        Self { time_s, values }
    }

    pub(crate) fn get(&self, field: Field) -> u32 {
        self.values[field as usize]
    }

    /// Sets a figure; one beyond 32 bits counts as the largest.
    pub(crate) fn set(&mut self, field: Field, value: u64) {
        self.values[field as usize] = u32::try_from(value).unwrap_or(u32::MAX);
    }

    pub(super) fn values(&self) -> &[u32; FIELD_COUNT] {
        &self.values
    }
}

/// Samples on their way to becoming one.
#[derive(Debug, Clone, Default)]
pub(crate) struct Merged {
    count: u32,
    sample: Sample,
    /// Sums of the figures that are averaged.
    sums: Vec<u64>,
}

impl Merged {
    pub(crate) fn add(&mut self, next: &Sample) {
        if self.count == 0 {
            self.count = 1;
            self.sample = *next;
            self.sums = next.values.iter().map(|value| u64::from(*value)).collect();
            return;
        }
        self.count += 1;
        // Before the figures that decide are merged themselves.
        for (field, _, merge, _) in FIELDS {
            if let Merge::With(other) = merge
                && next.get(*other) > self.sample.get(*other)
            {
                self.sample.values[*field as usize] = next.get(*field);
            }
        }
        for (field, _, merge, _) in FIELDS {
            let (at, new) = (*field as usize, next.get(*field));
            self.sums[at] += u64::from(new);
            let value = &mut self.sample.values[at];
            match merge {
                Merge::Sum => *value = value.saturating_add(new),
                Merge::Max => *value = (*value).max(new),
                Merge::Mean => *value = (self.sums[at] / u64::from(self.count)) as u32,
                Merge::Last => *value = new,
                Merge::With(_) => {}
            }
        }
    }

    /// All of them as one that begins at `time_s`; `None` of none.
    pub(crate) fn sample(&self, time_s: u32) -> Option<Sample> {
        (self.count > 0).then_some(Sample { time_s, ..self.sample })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_merge_by_the_rule_of_each_figure() {
        let mut merged = Merged::default();
        assert_eq!(merged.sample(1), None);
        for (second, commands, worst, command, idle, keys) in
            [(1, 10, 5, 1, 100, 3), (2, 20, 50, 2, 200, 9), (3, 30, 7, 3, 600, 6)]
        {
            let mut sample = Sample::new(second);
            for (field, value) in [
                (Field::Commands, commands),
                (Field::Worst, worst),
                (Field::WorstCommand, command),
                (Field::Idle, idle),
                (Field::Keys, keys),
            ] {
                sample.set(field, value);
            }
            merged.add(&sample);
        }
        let sample = merged.sample(1).unwrap();
        let figures = [Field::Commands, Field::Worst, Field::WorstCommand, Field::Idle, Field::Keys];
        assert_eq!(figures.map(|field| sample.get(field)), [60, 50, 2, 300, 6]);
        assert_eq!((sample.time_s, sample.get(Field::Seconds)), (1, 3));
    }

    #[test]
    fn figures_stand_at_their_places() {
        for (place, (field, ..)) in FIELDS.iter().enumerate() {
            assert_eq!(*field as usize, place);
        }
        let mut sample = Sample::new(1);
        sample.set(Field::Commands, u64::MAX);
        assert_eq!(sample.get(Field::Commands), u32::MAX);
    }
}
